"""Tests of words: their division, the forms in which they are equal, and the parts by which texts are found."""

# ruff: noqa: RUF001

from __future__ import annotations

import pickle
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import hashed_by
from sklearn.base import clone

from cmt_numba import MemoryStore
from cmt_numba._words import (
    N_WORDS,
    WordList,
    count_words,
    fold_text,
    hash_whole_words,
    hash_words,
    terms_of,
    whole_words_of,
    words_of,
)
from cmt_numba.sequences import EditDistance
from cmt_numba.text import BM25Vectorizer, TextClassifier

WORDS = [
    ("Don't use snake_case, e-mail.", ["don", "t", "use", "snake", "case", "e", "mail"]),
    ("I write C, C++ (or C#) and C++11", ["i", "write", "c", "c++", "or", "c#", "and", "c++", "11"]),
    ("$5, 5% and 7 €", ["$", "5", "5", "%", "and", "7", "€"]),
    ("5 + 3=8, 5-3, -2", ["5", "+", "3", "=", "8", "5", "-", "3", "-", "2"]),
    ("well-known - not a sum", ["well", "known", "not", "a", "sum"]),
    ("a<b>c</b> x->y // http://x.y", ["a", "b", "c", "b", "x", "y", "http", "x", "y"]),
    ("Fine :-)) but sad:( and :D <3", ["fine", ":)", "but", "sad", ":(", "and", ":d", "<3"]),
    ("see (note: here) or f(x:y)", ["see", "note", "here", "or", "f", "x", "y"]),
    ("👍🏽 ❤️", ["👍", "🏽", "❤"]),
    ("我住 ไป", ["我", "住", "ไ", "ป"]),
    ("हिन्दी བོད་ཡིག", ["हिन्दी", "བོད", "ཡིག"]),
    ("\u200b soft\xadhyphen", ["softhyphen"]),
    ("?! ... ,", []),
]

EQUAL = [
    ("straße", "STRASSE"),
    ("ＡＢＣ １２", "abc 12"),
    ("كِتَابٌ", "كتاب"),
    ("مدرســة", "مدرسه"),
    ("إلى", "الي"),
    ("شָׁלוֹם".replace("ش", "ש"), "שלום"),
    ("Πόλη", "ΠΟΛΗ"),
    ("ёлка", "ЕЛКА"),
    ("İSTANBUL", "istanbul"),
    ("می\u200cخواهم", "میخواهم"),
    ("१२३ ٤٥", "123 45"),
    ("5 × 3 − 2", "5 * 3 - 2"),
    ("ﬁne", "fine"),
]

TERMS = [
    ("houses", ["houses", "house"]),
    ("housing", ["housing", "housi"]),
    ("house", ["house", "hous"]),
    ("room", ["room"]),
    ("1234567", ["1234567"]),
    ("notepad++", ["notepad++", "notepad", "notep"]),
    ("c++", ["c++"]),
    ("蜜蜂很", ["蜜蜂", "蜂很", "蜜", "蜂", "很"]),
    ("猫", ["猫"]),
    ("ไปไหม", ["ไป", "ปไ", "ไห", "หม", "ไปไ", "ปไห", "ไหม"]),
    ("보고서", ["보고서", "보고", "고서"]),
    ("والكتاب", ["والكتاب", "كتاب"]),
]


@pytest.mark.parametrize(("text", "expected"), WORDS)
def test_words(text: str, expected: list[str]):
    assert words_of(text) == expected


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_words(one: str, other: str):
    assert words_of(one) == words_of(other)
    assert fold_text(one) == fold_text(other)


@pytest.mark.parametrize(("word", "expected"), TERMS)
def test_terms(word: str, expected: list[str]):
    assert terms_of(word) == expected


@given(st.text())
def test_forms_of_unicode_do_not_matter(text: str):
    for form in ("NFC", "NFD"):
        assert terms_of(unicodedata.normalize(form, text)) == terms_of(text)
    assert all(word and " " not in word for word in words_of(text))
    assert hash_words(text).total() == len(terms_of(text))


def test_case_can_be_kept():
    assert words_of("Rain :D Über", keep_case=True) == ["Rain", ":D", "Über"]


def test_stop_words_leave_no_parts():
    assert terms_of("because houses", frozenset({"because"})) == ["houses", "house"]


def test_counts_are_rows_of_hashes():
    counts = count_words(["red red fox", None, "?", "fox"])
    assert counts.shape == (4, N_WORDS)
    assert np.diff(counts.indptr).tolist() == [2, 0, 0, 1]
    assert sorted(counts[0].data.tolist()) == [1, 2]
    assert counts.has_canonical_format
    own = count_words(["Red fox"], str.split)
    assert own.indices.tolist() == sorted(hash_words("Red fox", str.split))
    assert sorted(own.indices) != sorted(hash_words("Red fox"))


@pytest.mark.parametrize("characters", ["aBzq19 $%+-*/^<=>:;(#)'.\n_\x00\x1c", "aBcdefgh12    -:;()", "aBcde $-é我"])
def test_many_texts_have_the_words_of_single_texts(characters):
    rng = np.random.default_rng(len(characters))
    texts = ["".join(rng.choice(list(characters), rng.integers(20))) for _ in range(2_000)]
    counts = count_words(texts)
    for text, start, stop in zip(texts, counts.indptr, counts.indptr[1:], strict=False):
        assert dict(zip(counts.indices[start:stop], counts.data[start:stop], strict=True)) == hash_words(text), text


def test_stores_find_words_in_any_form_and_order():
    store = MemoryStore(random_state=0)
    store.add(["fr", "ko", "bee", "honey"], texts=["le café est fermé", "매출 보고서", "蜜蜂很小", "蜂蜜很小"])
    for query, key in [("café", "fr"), ("보고서", "ko"), ("蜜蜂", "bee"), ("蜂蜜", "honey")]:
        assert store.query(texts=unicodedata.normalize("NFD", query), k=1).keys.tolist() == [[key]]


def test_vowel_signs_do_not_cut_words():
    store = MemoryStore(random_state=0)
    store.add(["book", "pen", "peace"], texts=["كِتَابٌ جَدِيدٌ", "قَلَمٌ", "שָׁלוֹם"])
    assert store.query(texts="كَلِمَة", k=3).keys.tolist() == [[None] * 3]  # in no text
    assert store.query(texts="كتاب", k=1).keys.tolist() == [["book"]]
    assert store.query(texts="שלום", k=1).keys.tolist() == [["peace"]]


def test_classifiers_know_symbols_and_forms():
    texts = ["write C code", "write C++ code", "write C# code", "5 + 3", "5 - 3", "I love it :)", "I love it :("]
    labels = ["C", "C++", "C#", "plus", "minus", "happy", "sad"]
    assert TextClassifier(random_state=0).fit(texts, labels).predict(texts).tolist() == labels
    korean = ["비밀번호를 바꾸고 싶어요", "주문을 취소해 주세요", "영업 시간이 어떻게 되나요"]
    learned = TextClassifier(random_state=0).fit(korean, ["password", "cancel", "hours"])
    decomposed = [unicodedata.normalize("NFD", text) for text in korean]
    assert learned.predict(decomposed).tolist() == ["password", "cancel", "hours"]


def test_vectorizers_and_stores_have_the_same_scores():
    texts = ["the red houses", "a red house, red door", "दिन का समय", "दीन दुखी लोग", "C++ and C#"]
    vectorizer = BM25Vectorizer(norm=None)
    keys = vectorizer.fit_transform(texts)
    store = MemoryStore(random_state=0)
    store.add(range(5), texts=texts)
    for query in ["red red housing", "दीन", "c#", "a door"]:
        scores = (vectorizer.transform([query]) @ keys.T).toarray()[0]
        found = store.query(texts=query, k=5)[0]
        np.testing.assert_allclose([hit.score for hit in found], np.sort(scores[scores > 0.0])[::-1], rtol=1e-5)
        assert [hit.key for hit in found] == np.lexsort((np.arange(5), -scores))[: len(found)].tolist()


def of_words(text: str) -> list[str]:
    """Return the words of a text without "the" and the letter "s" at the end."""
    return [word.removesuffix("s") for word in text.lower().split() if word != "the"]


def test_stores_need_their_tokenizer(tmp_path: Path):
    with MemoryStore(tmp_path / "store", tokenizer=of_words, random_state=0) as store:
        store.add(["a", "b"], texts=["The cats sleep", "the dogs"])
        assert store.query(texts="cat", k=2).keys.tolist() == [["a", None]]
        assert store.query(texts="the", k=2).keys.tolist() == [[None, None]]
        with pytest.raises(ValueError, match=r"texts must contain words, but texts\[0\] is 'the'"):
            store.add("c", texts="the")
        store.save(tmp_path / "file")
        again = pickle.loads(pickle.dumps(store))
    for opened in (
        MemoryStore(tmp_path / "store", tokenizer=of_words),
        MemoryStore.load(tmp_path / "file", tokenizer=of_words),
        again,
    ):
        assert opened.query(texts="dog", k=1).keys.tolist() == [["b"]]
        opened.close()
    for tokenizer in (None, str.split):
        for attempt in (
            lambda t: MemoryStore(tmp_path / "store", tokenizer=t),
            lambda t: MemoryStore.load(tmp_path / "file", tokenizer=t),
        ):
            with pytest.raises(ValueError, match=r"tokenizer must be .* 'of_words', which files do not"):
                attempt(tokenizer)
    with MemoryStore(tmp_path / "plain") as store:
        store.add("a", texts="The cats")
    with pytest.raises(ValueError, match=r"the default words; pass tokenizer=None, got of_words"):
        MemoryStore(tmp_path / "plain", tokenizer=of_words)


@pytest.mark.parametrize("tokenizer", [str.lower, lambda text: [text, 1]])
def test_tokenizers_return_words(tokenizer: Any):
    store = MemoryStore(tokenizer=tokenizer)
    with pytest.raises(TypeError, match=r"tokenizer must return a list of words, got .* for the text 'A cat'"):
        store.add("a", texts="A cat")
    assert len(store) == 0
    with pytest.raises(TypeError, match=r"tokenizer must be a function"):
        MemoryStore(tokenizer="words")


def test_vectorizers_need_their_tokenizer(tmp_path: Path):
    learned = BM25Vectorizer(tokenizer=of_words).fit(["The cats sleep", "the dogs"])
    assert learned.get_feature_names_out().tolist() == ["cat", "dog", "sleep", "norm"]
    learned.save(tmp_path / "keys")
    loaded = BM25Vectorizer.load(tmp_path / "keys")
    with pytest.raises(ValueError, match=r"tokenizer must be .* 'of_words', which files do not"):
        loaded.transform(["cat"])
    assert loaded.set_params(tokenizer=of_words).transform(["cat"]).nnz == 1


def of_phrases(text: str) -> list[str]:
    """Return what is between commas."""
    return text.split(",")


def test_classifiers_need_their_tokenizer(tmp_path: Path):
    texts, y = ["The cats, the dogs", "cats", "red house", "houses"], ["animal", "animal", "place", "place"]
    later = ["the rivers", "river"], ["water", "water"]
    learned = TextClassifier(tokenizer=of_words, random_state=0).fit(texts, y).partial_fit(*later)
    learned.save(tmp_path / "file")
    with TextClassifier.open(tmp_path / "folder", tokenizer=of_words, random_state=0) as classifier:
        classifier.fit(texts, y).partial_fit(*later)
        classifier.set_params(tokenizer=str.split)
        with pytest.raises(ValueError, match=r"'of_words', which files do not contain; pass it as tokenizer=of_words"):
            classifier.fit(texts, y)
    loaded = TextClassifier.load(tmp_path / "file")
    for call in (lambda: loaded.predict(["cats"]), lambda: loaded.partial_fit(*later), lambda: loaded.explain(["cat"])):
        with pytest.raises(ValueError, match=r"tokenizer must be .* 'of_words', which files do not .* got None"):
            call()
    for tokenizer in (None, str.split):
        with pytest.raises(ValueError, match=r"tokenizer must be .* 'of_words', which files do not"):
            TextClassifier.open(tmp_path / "folder", tokenizer=tokenizer)
    asked = ["a cat", "the house", "rivers"]
    with TextClassifier.open(tmp_path / "folder", tokenizer=of_words) as opened:
        for known in (opened, loaded.set_params(tokenizer=of_words), pickle.loads(pickle.dumps(learned))):
            np.testing.assert_array_equal(known.predict_proba(asked), learned.predict_proba(asked))
    assert loaded.set_params(tokenizer=None).fit(texts, y).predict(["cats"]).tolist() == ["animal"]
    loaded.save(tmp_path / "file")
    with pytest.raises(ValueError, match=r"the default words; pass tokenizer=None, got of_words"):
        TextClassifier.load(tmp_path / "file").set_params(tokenizer=of_words).predict(["cats"])
    assert clone(learned).tokenizer is of_words


def test_classifiers_keep_the_words_of_a_tokenizer():
    texts, y = ["new york,snow", "york,new snow", "蜜蜂", "蜂蜜"], ["a", "b", "c", "d"]
    classifier = TextClassifier(tokenizer=of_phrases, random_state=0).fit(texts, y)
    assert classifier.predict(texts).tolist() == y
    found = classifier.explain(["new york,snow"])[0]
    assert {word.replace("\u00a0", " ") for word, _ in found.words} == {"new york", "snow"}
    assert hashed_by(classifier, ["蜜蜂"]).columns.size == hashed_by(classifier, ["ab"]).columns.size
    with pytest.raises(TypeError, match=r"tokenizer must return a list of words, got .* for the text 'a'"):
        classifier.set_params(tokenizer=str.lower).fit(["a"], ["a"])
    with pytest.raises(TypeError, match=r"tokenizer must be a function"):
        TextClassifier(tokenizer="words").fit(texts, y)


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("aàß5+-:) ́蜂กش"), max_size=30))
def test_whole_words_have_the_terms_of_their_text(text: str):
    assert hash_whole_words(whole_words_of(text)) == hash_words(text)
    assert hash_whole_words(whole_words_of(text, str.split), str.split) == hash_words(text, str.split)


def test_near_words_are_those_within_the_edit_distance():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcé"), n)) for n in rng.integers(1, 9, 600)] + ["a" * 64, "b" * 65, "abc1"]
    listed, distance = WordList(), EditDistance("abcé1")
    listed.add(words[:300])
    listed.add(words)
    for word in [*words[:100], "a" * 63, "ab"]:
        limit = 0 if len(word) < 3 else 1 if len(word) < 6 else 2
        distances = dict(zip(words, distance.pairwise([word], words)[0].tolist(), strict=True))
        wanted = {one: n for one, n in distances.items() if n <= limit and 3 <= len(one) <= 64 and "1" not in one}
        assert {one: n for n, one in listed.near(word)} == (wanted if limit else {})


def test_misspelt_words_are_replaced_by_the_nearest_words_of_texts(tmp_path: Path):
    with MemoryStore(tmp_path / "store", random_state=0) as store:
        store.add(["a", "b", "c"], texts=["a receipt for pears", "Äpfel und Birnen in 2019", "蜜蜂 honey"])
        assert store.query(texts="recieptt", k=1).keys.tolist() == [[None]]
        asked = ["reciept", "the Äpfle", "hoeny", "2018", "xylophone", "pears"]
        assert store.query(texts=asked, k=1, fuzzy=True).keys.T.tolist() == [["a", "b", "c", None, None, "a"]]
        store.upsert(["a", "d"], texts=["a violin", "violas"])
        store.delete("c")
        with MemoryStore(tmp_path / "store", read_only=True) as reader:
            for one in (store, reader):
                found = one.query(texts=["reciept", "vioiln", "hoeny", "voilas"], k=1, fuzzy=True)
                assert found.keys.T.tolist() == [[None, "a", None, "d"]]
            store.add("e", texts="a trumpet")
            reader.refresh()
            assert reader.query(texts="trumpte", k=1, fuzzy=True).keys.tolist() == [["e"]]
    with pytest.raises(ValueError, match="fuzzy=True replaces words of texts: pass texts"):
        store.query(np.ones(3), fuzzy=True)


def test_of_equally_near_words_the_most_frequent_is_chosen():
    store = MemoryStore(tokenizer=str.split, random_state=0)
    store.add(range(4), texts=["form", "from x", "from y", "New York"])
    assert set(store.query(texts="frm", k=3, fuzzy=True).keys[0]) == {1, 2, None}
    assert store.query(texts="New Yrok", k=1, fuzzy=True)[0][0].text == "New York"
    assert store.explain(texts="Yrok", k=1) == []
    assert [result.key for result in store.explain(texts="Yrok", k=1, fuzzy=True)] == [3]


@pytest.mark.parametrize("text", ["上海", "海", "ก", "กขกข 上海ก上 กขค", "東京都 and 京都, 京都", "👍ก ಕನ್ನಡ"])
def test_equal_terms_of_scripts_without_spaces_have_equal_hashes(text: str):
    hashed, terms = hash_words(text), Counter(terms_of(text))
    assert sorted(hashed.values()) == sorted(terms.values())
    assert not hashed - hash_words(f"{text} {text}上ก")
