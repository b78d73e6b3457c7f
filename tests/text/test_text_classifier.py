"""TextClassifier: learning, forgetting, probabilities, explanations, files and folders."""

import pickle
import threading
from functools import partial

import numpy as np
import pytest
import sklearn
from failures import failing
from internals import model_of, persistence_objects, text_text_classifier
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from cmt_numba import CMTClassifier
from cmt_numba.text import TextClassifier

WORDS = {
    "weather": ["rain", "wind", "sun", "cloud", "storm", "snow", "cold", "warm", "umbrella", "forecast"],
    "music": ["song", "album", "guitar", "drum", "singer", "chorus", "concert", "piano", "melody", "band"],
    "food": ["bread", "soup", "cheese", "dinner", "recipe", "kitchen", "salt", "oven", "breakfast", "taste"],
}
LATER = ["goal", "match", "team", "ball", "referee", "league", "player", "stadium", "coach", "score"]
COMMON = ["the", "a", "of", "and", "is", "what", "please", "tell", "me", "about"]


def sentences(words, n, seed):
    rng = np.random.default_rng(seed)
    return [" ".join([*rng.choice(COMMON, 3), *rng.choice(words, 3), *rng.choice(COMMON, 2)]) for _ in range(n)]


def labelled(n=12, seed=0):
    pairs = [(text, label) for label, words in WORDS.items() for text in sentences(words, n, seed)]
    return [text for text, _ in pairs], [label for _, label in pairs]


@pytest.fixture(scope="module")
def fitted():
    texts, labels = labelled()
    return pickle.dumps(TextClassifier(random_state=0).fit(texts, labels, ids=[f"t{i}" for i in range(len(texts))]))


@pytest.fixture
def classifier(fitted):
    return pickle.loads(fitted)


def test_one_text_gets_the_same_answer_as_in_a_batch(classifier):
    texts, _ = labelled(4, seed=2)
    together = classifier.predict_proba(texts)
    alone = np.concatenate([classifier.predict_proba([text]) for text in texts])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_allclose(together.sum(axis=1), 1.0)


def test_texts_and_classes_are_forgotten_by_their_ids(classifier):
    classifier.remove(["t0", "t35"])
    assert classifier.n_texts_ == 34
    with pytest.raises(KeyError, match="'t0'"):
        classifier.remove("t0")
    classifier.remove_classes(["music"])
    assert classifier.classes_.tolist() == ["food", "weather"]
    assert "music" not in classifier.predict(sentences(WORDS["music"], 5, 1))
    classifier.partial_fit(sentences(WORDS["music"], 2, 1), ["music"] * 2, ids=["t0", 7])
    assert classifier.n_texts_ == 11 + 11 + 2


def test_what_cannot_be_used_changes_nothing(classifier):
    before = pickle.dumps(classifier)
    for texts, labels, ids in (
        ("a text", ["food"], None),
        ([1], ["food"], None),
        (["a text"], [3], None),
        (["a text"], ["food", "music"], None),
        (["a text"], ["food"], ["t1"]),
        (["a text", "another"], ["food"] * 2, ["new", "new"]),
        (["a text"], ["food"], [1.5]),
    ):
        with pytest.raises((TypeError, ValueError)):
            classifier.partial_fit(texts, labels, ids)
    with pytest.raises(ValueError, match="known classes"):
        classifier.remove_classes(["sport"])
    with pytest.raises(ValueError, match="must not include all classes"):
        classifier.remove_classes(["food", "music", "weather"])
    assert pickle.dumps(classifier) == before


def test_texts_may_be_empty_and_in_any_script(classifier):
    odd = ["", "   ", "?!", "a\nb\0c", "日本語のテキスト", "हिन्दी में", "👍🏽", "x" * 100_000, "word " * 20_000]
    assert len(classifier.predict(odd)) == len(odd)
    classifier.partial_fit(odd, ["odd"] * len(odd))
    assert "odd" in classifier.classes_


def test_texts_without_spaces_are_distinguished():
    texts = ["今日は雨が降ります", "明日は雪が降るでしょう", "この曲が大好きです", "新しい曲を聴きました"]
    classifier = TextClassifier(random_state=0).fit(texts, ["weather", "weather", "music", "music"])
    assert classifier.predict(["雨が降るでしょう", "好きな曲"]).tolist() == ["weather", "music"]


def test_the_best_classes_come_first(classifier):
    texts, _ = labelled(3, seed=4)
    best, chances = classifier.top_classes(texts, 2)
    assert best.shape == chances.shape == (9, 2)
    assert np.all(chances[:, 0] >= chances[:, 1])
    assert classifier.classes_[best[:, 0]].tolist() == classifier.predict(texts).tolist()


def test_explanations_name_the_words_that_count(classifier):
    why = classifier.explain(["please tell me about the soup"], n_words=1)[0]
    assert (why.label, why.words[0][0]) == ("food", "soup")
    assert why.words[0][1] > 0.0
    assert "soup" in str(why)


def test_further_texts_calibrate(classifier):
    texts, labels = labelled(10, seed=6)
    before = classifier.predict_proba(texts)
    after = classifier.calibrate(texts, labels).predict_proba(texts)
    assert np.array_equal(before.argmax(axis=1), after.argmax(axis=1))
    assert not np.array_equal(before, after)
    classifier.calibrate()
    with pytest.raises(ValueError, match="both be"):
        classifier.calibrate(texts)


def test_saves_and_copies_exclude_changes(classifier, tmp_path, monkeypatch):
    texts, labels = labelled(3, seed=7)
    path, known = tmp_path / "texts.cmt", pickle.dumps(classifier)
    packs, started = text_text_classifier.pack_contents, []

    def learn():
        classifier.partial_fit(texts, labels)

    def learn_meanwhile(work, *arguments):
        started.append(threading.Thread(target=learn))
        started[-1].start()
        started[-1].join(0.2)
        assert started[-1].is_alive(), "a change ran while the contents were written"
        return work(*arguments)

    writes = persistence_objects.write_contents
    monkeypatch.setattr(persistence_objects, "write_contents", partial(learn_meanwhile, writes))
    monkeypatch.setattr(text_text_classifier, "pack_contents", partial(learn_meanwhile, packs))
    for write in (pickle.dumps, lambda one: one.save(path)):
        contents = write(classifier)
        started[-1].join()
        assert classifier.n_texts_ == 36 + 9 * len(started)
        assert contents in (None, known)
    assert TextClassifier.load(path).n_texts_ == 36 + 9


def encode(texts):
    """Return a vector for each text, with one large component for the class of its words."""
    kinds = [*WORDS.values(), LATER]
    return np.array([[0.3 + sum(text.count(word) for word in words) for words in kinds] for text in texts])


class Counting:
    def __init__(self):
        self.n_encoded = 0

    def encode(self, texts):
        self.n_encoded += len(texts)
        return encode(texts)


def test_an_encoder_encodes_a_text_once(tmp_path):
    (texts, labels), encoder = labelled(4), Counting()
    with TextClassifier.open(tmp_path / "folder", encoder, random_state=0) as classifier:
        classifier.partial_fit(texts, labels)
        classifier.partial_fit(sentences(LATER, 4, 0), ["sport"] * 4)
        n = encoder.n_encoded
        assert n <= len(texts) + 4
        assert classifier.predict(texts[:3]).tolist() == labels[:3]
        assert encoder.n_encoded == n
    with TextClassifier.open(tmp_path / "folder", encoder=encoder) as classifier:
        classifier.fit(texts, labels)
        assert encoder.n_encoded == n + 8  # compared with stored vectors
        assert classifier.predict(["stadium ball", *texts[:1]]).tolist()[1:] == labels[:1]


def test_another_encoder_is_only_used_after_another_fit(tmp_path):
    (texts, labels), changed = labelled(4), lambda texts: encode(texts)[:, ::-1]
    wide = lambda texts: np.hstack([encode(texts), encode(texts)])  # noqa: E731
    expected = TextClassifier(changed, random_state=0).fit(texts, labels).predict_proba(texts)
    with TextClassifier.open(tmp_path / "folder", encoder=encode, random_state=0) as classifier:
        classifier.fit(texts, labels)
    with TextClassifier.open(tmp_path / "folder", encoder=changed) as classifier:
        for use in (classifier.predict, lambda texts: classifier.partial_fit(texts, labels)):
            with pytest.raises(ValueError, match="same encoder"):
                use(texts)
        np.testing.assert_array_equal(classifier.fit(texts, labels).predict_proba(texts), expected)
        with pytest.raises(ValueError, match="ids"):
            classifier.set_params(encoder=encode).fit(texts, labels, ids=[1])
        with pytest.raises(ValueError, match="same encoder"):
            classifier.predict(texts)
        classifier.set_params(encoder=wide).fit(texts, labels)
        assert classifier.predict(texts).tolist() == labels
        classifier.set_params(encoder=None).fit(texts, labels)
        assert classifier.predict(texts).tolist() == labels


def test_neighbors_by_an_encoder_and_encoders_for_queries():
    class ForQueries:
        encode_query = staticmethod(encode)

    texts, labels = labelled(4)
    one, other = (TextClassifier(encoder, random_state=0).fit(texts, labels) for encoder in (encode, ForQueries()))
    np.testing.assert_array_equal(one.predict_proba(texts), other.predict_proba(texts))
    similar = one.kneighbors(["a recipe of soup"], 4, return_distance=False)[0]
    assert {labels[i] for i in similar} == {"food"}
    one.relabel(0, ["food"])
    assert one.predict(texts[:1]).tolist() == ["food"]


def test_an_encoder_that_returns_nonsense_is_refused():
    texts, labels = labelled(2)
    for wrong in (np.ones(3), np.full((len(texts), 2), np.nan), np.ones((len(texts), 2), complex), [[1.0]] * 3, None):
        with pytest.raises((TypeError, ValueError), match="encoder must return"):
            TextClassifier(lambda _, wrong=wrong: wrong).fit(texts, labels)
    with pytest.raises(ValueError, match="encoder must be"):
        TextClassifier("unknown").fit(texts, labels)
    widths = iter([2, 3, 2])
    classifier = TextClassifier(lambda texts: np.ones((len(texts), next(widths)))).fit(texts, labels)
    with pytest.raises(ValueError, match=r"encoder must return an array of shape \(1, 2\), got \(1, 3\)"):
        classifier.predict(["new"])
    assert classifier.predict(["new", texts[0]]).size == 2


def test_a_classifier_ends_a_pipeline():
    texts, labels = labelled(4)
    pipeline = make_pipeline("passthrough", TextClassifier(random_state=0))
    with pytest.raises(NotFittedError):
        pipeline.predict(texts)
    assert pipeline.fit(texts, labels).predict(texts).tolist() == labels


def test_clones_share_the_encoder():
    class Locked:
        def __init__(self):
            self.own_lock = threading.Lock()

        def encode(self, texts):
            return encode(texts)

    texts, labels = labelled(4)
    with sklearn.config_context(enable_metadata_routing=True):
        classifier = TextClassifier(Locked(), random_state=0).set_fit_request(sample_weight=True).fit(texts, labels)
        copied = clone(classifier)
        assert copied.encoder is classifier.encoder
        assert copied.get_metadata_routing().fit.requests["sample_weight"] is True
    assert not copied.__sklearn_is_fitted__()
    assert copied.fit(texts, labels).predict(texts).tolist() == labels


def test_a_folder_keeps_every_change(tmp_path):
    texts, labels = labelled(6)
    with TextClassifier.open(tmp_path / "folder", random_state=0) as classifier:
        classifier.fit(texts, labels, ids=[f"t{i}" for i in range(len(texts))])
        classifier.partial_fit(sentences(LATER, 1, 0), ["sport"])
        classifier.remove(["t1"]).remove_classes(["food"])
        classifier.calibrate(texts[:6], labels[:6])
        expected = classifier.predict_proba(texts)
        with pytest.raises(ValueError, match="already stored"):
            classifier.partial_fit(["text"], ["sport"], ids=["t2"])
    with TextClassifier.open(tmp_path / "folder") as classifier:
        np.testing.assert_array_equal(classifier.predict_proba(texts), expected)
        classifier.checkpoint()
    with TextClassifier.open(tmp_path / "folder", read_only=True) as classifier:
        np.testing.assert_array_equal(classifier.predict_proba(texts), expected)


def shared_words(n_classes, n_texts, seed):
    """Return texts whose classes differ by two of six words, and their classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n_texts)
    words = [[*rng.choice(30, 4), label, (label * 7 + 3) % n_classes] for label in labels]
    return [" ".join(f"word{word}" for word in rng.permutation(row)) for row in words], labels


def test_a_corrected_text_is_classified_as_corrected():
    texts, labels = shared_words(20, 200, 0)
    asked, right = shared_words(20, 200, 1)
    classifier = TextClassifier(random_state=0).fit(texts, labels)
    before = np.mean(classifier.predict(asked[60:]) != right[60:])
    for text, label in zip(asked[:60], (right[:60] + 7) % 20, strict=True):  # no word indicates the class
        assert classifier.partial_fit([text], [label]).predict([text])[0] == label
    classifier = TextClassifier(random_state=0).fit(texts, labels)
    for text, label in zip(asked[:60], right[:60], strict=True):
        assert classifier.partial_fit([text], [label]).predict([text])[0] == label
    assert np.mean(classifier.predict(asked[60:]) != right[60:]) <= before + 0.03


@pytest.mark.parametrize(("n_wrong", "least"), [(0, 49 / 50), (5, 39 / 50)])
def test_stored_texts_are_as_probable_as_repeated_texts_show(n_wrong: int, least: float):
    texts, labels = shared_words(20, 200, 0)
    asked, right = shared_words(20, 60, 1)
    of_copies = (labels[:15] + (np.arange(15) < n_wrong)) % 20
    classifier = TextClassifier(random_state=0).fit(texts + texts[:15], np.concatenate([labels, of_copies]))
    classifier.partial_fit(asked[:30], right[:30])
    best, chances = classifier.top_classes([text.upper() + "!" for text in asked[:30]], 1)
    np.testing.assert_array_equal(best[:, 0], right[:30])
    assert model_of(classifier).copies_agree == least
    assert chances.min() >= least - 1e-9
    before = classifier.predict_proba(asked)
    model_of(classifier).copies_agree = 0.0
    after = classifier.predict_proba(asked)
    np.testing.assert_array_equal(before[30:], after[30:])
    lowest = after[:30].max(axis=1).min()
    assert before[:30].max(axis=1).min() > lowest or lowest >= least


def test_texts_that_come_singly_are_as_good_as_one_fit():
    texts, labels = shared_words(20, 500, 0)
    asked, right = shared_words(20, 300, 1)
    live = TextClassifier(random_state=0).fit(texts[:200], labels[:200])
    weights = model_of(live).weights
    for n, text, label in zip(range(201, 501), texts[200:], labels[200:], strict=True):
        assert live.partial_fit([text], [label]).predict([text])[0] == label  # also when all texts are learned again
        assert model_of(live).n_since <= 0.1 * n
        assert (model_of(live).weights is weights) == (n < 250)  # 1.25 times as many texts
    fitted = TextClassifier(random_state=0).fit(texts, labels)
    errors = [np.mean(one.predict(asked) != right) for one in (live, fitted)]
    assert errors[0] <= errors[1] + 0.01


def test_the_same_text_may_change_its_class(classifier):
    text = sentences(WORDS["food"], 1, 3)
    for label in ("music", "food", "new", "music"):
        assert classifier.partial_fit(text, [label]).predict(text).tolist() == [label]


def test_all_texts_can_be_relabelled_at_once():
    """No text is left between removing and learning them, also if texts have vectors."""
    texts = [f"word{i} other{j}" for i in range(12) for j in range(3)]
    classifier = TextClassifier(random_state=0).fit(texts, [text.split()[0] for text in texts], ids=texts)
    classifier.relabel(texts, [text.split()[1] for text in texts])
    assert classifier.predict(["other1"]).tolist() == ["other1"]


def test_texts_are_relabelled_in_one_step(classifier, tmp_path):
    texts, _ = labelled()
    for folder in (None, tmp_path / "folder"):
        if folder is not None:
            classifier = TextClassifier.open(folder, random_state=0).fit(texts, labelled()[1])
            classifier.ids_  # noqa: B018
        ids = classifier.ids_
        classifier.relabel([ids[0], ids[30]], ["nature", "nature"])
        assert classifier.predict([texts[0], texts[30]]).tolist() == ["nature", "nature"]
        assert sorted(classifier.ids_, key=str) == sorted(ids, key=str)
        classifier.relabel(ids[24:], ["nature"] * 12)  # many texts: learns all again, and the class food has none left
        assert classifier.classes_.tolist() == ["music", "nature", "weather"]
        expected = classifier.predict_proba(texts)
        with pytest.raises(KeyError, match="no text has id 'unknown'"):
            classifier.relabel([ids[1], "unknown"], ["music", "music"])
        with pytest.raises(ValueError, match="one entry"):
            classifier.relabel(ids[:2], ["music"])
        np.testing.assert_array_equal(classifier.predict_proba(texts), expected)
        classifier.close()
    with TextClassifier.open(tmp_path / "folder") as classifier:
        np.testing.assert_array_equal(classifier.predict_proba(texts), expected)


def test_readers_of_the_former_model_are_not_affected_by_a_relabelling(classifier):
    texts, former = labelled(2), model_of(classifier)
    hashed, _ = classifier._read(texts[0])
    before = [scores.copy() for scores in former.scores(hashed, None)]
    classifier.relabel("t0", ["music"])
    for found, expected in zip(former.scores(hashed, None), before, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_sample_weights_count_like_repeated_texts():
    texts = ["red fish", "blue fish", "red bird", "blue bird", "a red fish and a blue bird"] * 3
    labels = ["red", "blue", "red", "blue", "red"] * 3
    asked = ["the blue bird", "a blue bird"]
    one, heavy, none = (
        TextClassifier(random_state=0).fit(texts, labels, sample_weight=[1, 1, 1, 1, weight] * 3).predict_proba(asked)
        for weight in (1, 5, 0)
    )
    assert heavy[1, 1] > one[1, 1] > none[1, 1]
    for wrong in ([1.0], [-1.0] * 15, [np.nan] * 15, [1e9] * 15):
        with pytest.raises(ValueError, match="sample_weight"):
            TextClassifier().fit(texts, labels, sample_weight=wrong)
    classifier = TextClassifier(random_state=0).fit(texts, labels)
    classifier.partial_fit(["green"], ["red"], sample_weight=[2.0])
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(classifier)).predict_proba(asked), classifier.predict_proba(asked)
    )


@pytest.mark.parametrize("words", [LATER, WORDS["music"]], ids=["new class", "known class"])
@pytest.mark.parametrize(
    "part",
    [
        "_class_sums.ClassSums.add",
        "_stored_texts.StoredTexts._list_copies",
        "_hashing.DocumentFrequencies.add",
        "_class_sums.ClassSums.refresh",
        "_text_model.TextModel._train_last",
    ],
)
def test_a_failed_partial_fit_leaves_no_text(part, words, classifier, tmp_path):
    asked, more = sentences(LATER + WORDS["food"], 9, 3), sentences(words, 2, 4)
    expected, label = classifier.predict_proba(asked), "sport" if words is LATER else "music"
    for after in (False, True):
        with failing(f"text.{part}", call=1, after=after):
            classifier.partial_fit(more, [label] * 2, ids=["one", "two"])
        classifier.save(tmp_path / "saved")
        for each in (classifier, TextClassifier.load(tmp_path / "saved")):
            np.testing.assert_allclose(each.predict_proba(asked), expected, atol=0.1)  # corrections remain
    classifier.partial_fit(more, [label] * 2, ids=["one", "two"])
    assert classifier.predict(more).tolist() == [label] * 2


def test_rejected_booleans_are_like_those_of_the_other_classifier():
    texts, X = ["red apple", "blue sky"] * 10, np.tile(np.eye(2, 3), (10, 1))
    for learner, rows in ((TextClassifier(random_state=0), texts), (CMTClassifier(random_state=0), X)):
        learner.fit(rows, [True, False] * 10)
        assert learner.predict(rows[:2], reject_below=1.0).tolist() == [-1, -1]


def test_texts_unlike_all_few_texts_are_rejected(tmp_path):
    classifier = TextClassifier(random_state=0)
    classifier.fit(["where is my card", "my card has not come", "how do I top up"], ["card", "card", "top up"])
    classifier.partial_fit(["can I pay in euros"], ["currency"])
    assert classifier.predict(["what is love", "the card is not here yet"], reject_below=0.5).tolist() == ["", "card"]
    two, _ = labelled(5)
    classifier = TextClassifier(random_state=0).fit(two[:10], ["weather"] * 5 + ["music"] * 5)
    asked = [*sentences(WORDS["weather"], 1, 1), "quantum chromodynamics", ""]
    assert classifier.predict(asked, reject_below=0.5).tolist() == ["weather", "", ""]
    np.testing.assert_allclose(classifier.predict_proba(asked).sum(axis=1), 1.0)
    assert classifier.top_classes(asked)[1].sum(axis=1).argmax() == 0


def test_texts_of_another_class_are_rejected_though_they_share_common_words():
    two, labels = labelled(20, seed=1)
    classifier = TextClassifier(random_state=0).fit(two[:40], labels[:40])
    accepted = classifier.predict(labelled(30, seed=9)[0], reject_below=0.5) != ""
    assert accepted[:60].mean() > 0.9
    assert accepted[60:].mean() < 0.05


def test_probabilities_from_few_texts_allow_for_errors():
    texts, labels = ["where is my card", "how do I top up", "can I pay in euros"], ["card", "top up", "currency"]
    classifier = TextClassifier(random_state=0).fit(texts, labels)
    assert classifier.predict_proba([*texts, "how do I cook rice"]).max() < 0.9
    assert classifier.predict(texts).tolist() == labels


def test_one_class_is_enough():
    classifier = TextClassifier(random_state=0).fit(sentences(WORDS["food"], 5, 0), ["food"] * 5)
    asked = [*sentences(WORDS["food"], 1, 1), "quantum chromodynamics"]
    assert classifier.predict(asked).tolist() == ["food", "food"]
    assert classifier.predict(asked, reject_below=0.5).tolist() == ["food", ""]
    assert classifier.predict_proba(asked).tolist() == [[1.0], [1.0]]
    assert classifier.explain(asked)[0].runner_up is None


def test_similar_texts_and_samples_of_classes(classifier):
    texts, _ = labelled()
    distances, ids = classifier.kneighbors([texts[3], texts[20]], 2)
    assert ids[:, 0].tolist() == ["t3", "t20"]
    np.testing.assert_allclose(distances[:, 0], 0.0, atol=1e-6)
    assert np.all(np.diff(distances, axis=1) > 0.0)
    assert classifier.kneighbors(texts[:1], 100, return_distance=False).shape == (1, 36)
    sample = classifier.sample("music", 3)
    assert len({one for one, _ in sample}) == 3
    assert all(12 <= int(one[1:]) < 24 and texts[int(one[1:])] == text for one, text in sample)
    assert len(classifier.sample("music", 100)) == 12
    with pytest.raises(ValueError, match="known class"):
        classifier.sample("sport")


def test_the_order_of_improbable_classes_is_kept():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.integers(0, 20, 5)) for _ in range(40)]
    classifier = TextClassifier(random_state=0).fit(texts, rng.integers(0, 2, 40))  # nothing to learn
    asked = [" ".join(f"w{word}" for word in rng.integers(0, 20, 5)) for _ in range(40)]
    np.testing.assert_array_equal(classifier.predict_proba(asked).argmax(axis=1), classifier.predict(asked))


class Text(str):
    __slots__ = ()


def test_a_folder_accepts_any_strings_and_numbers_and_keeps_the_seed(tmp_path):
    texts, labels = labelled(4)
    expected = TextClassifier(random_state=3).fit(texts, labels, ids=range(12)).predict_proba(texts)
    kinds = {"numpy": np.array(texts), "listed": list(np.array(texts)), "subclass": [Text(text) for text in texts]}
    for name, given in kinds.items():
        with TextClassifier.open(tmp_path / name, random_state=np.int64(3)) as classifier:
            classifier.fit(given, np.array(labels), ids=list(np.arange(12)))
        with TextClassifier.open(tmp_path / name) as classifier:
            assert classifier.random_state == 3
            np.testing.assert_array_equal(classifier.predict_proba(given), expected)
            classifier.partial_fit(given[:1], labels[:1], ids=np.array(["a"])).remove(np.int64(3)).remove(
                np.array(["a"])
            )
            assert classifier.ids_ == [0, 1, 2, *range(4, 12)]


def test_default_ids_are_unused():
    texts, labels = labelled(2)
    classifier = TextClassifier(random_state=0).fit(texts[:4], labels[:4], ids=[5, 4, "x", 9])
    assert classifier.partial_fit(texts[:3], labels[:3]).ids_[4:] == [6, 7, 8]


def test_missing_classes_are_named():
    for missing in ([None], ["a", None], [None, 3]):
        with pytest.raises(ValueError, match="is None"):
            TextClassifier().fit(["a text", "another"][: len(missing)], missing)


SHORT = ["red fox", "blue whale", "red planet far away", "the blue planet", "green and blue", "a fox and a whale"]
TOPICS = ["animal", "animal", "planet", "planet", "colour", "animal"]


def expected_sums(model):
    """Return the sum of the stored weights for each label and feature."""
    stored, expected = model.stored, {}
    for i, label in enumerate(stored.labels):
        for at in range(stored.hashed.starts[i], stored.hashed.starts[i + 1]):
            if model.sums.stored[at] != 0.0:
                key = int(stored.hashed.columns[at]), int(label)
                expected[key] = expected.get(key, 0.0) + float(model.sums.stored[at])
    return expected


def assert_sums_are_exact(classifier):
    model = model_of(classifier)
    columns, labels, sums, _ = model.sums.entries()
    found = {(int(c), int(label)): float(value) for c, label, value in zip(columns, labels, sums, strict=True)}
    expected = expected_sums(model)
    assert found.keys() >= expected.keys()
    for key, value in found.items():
        assert value == pytest.approx(expected.get(key, 0.0), abs=1e-4)
    squares = np.bincount(labels, sums.astype(np.float64) ** 2, model.names.size)
    vectors, shares = model.sums.vectors, np.zeros((model.names.size, len(model.stored)), np.float32)
    shares[model.stored.labels, np.arange(len(model.stored))] = model.stored.importance
    np.testing.assert_allclose(vectors.sums, shares @ vectors.of_texts, atol=1e-3)
    squares += np.square(vectors.sums, dtype=np.float64).sum(axis=1)
    np.testing.assert_allclose(model.sums.squares, squares, rtol=1e-3)


def test_sums_are_those_of_the_stored_texts_after_every_change():
    classifier = TextClassifier(random_state=0).fit(SHORT * 4, TOPICS * 4)
    assert_sums_are_exact(classifier)
    for i in range(40):
        classifier.partial_fit([f"sound number {i} of a loud song"], ["music" if i % 2 else "animal"])
    assert_sums_are_exact(classifier)
    classifier.remove([1, 25, 30])
    assert_sums_are_exact(classifier)
    classifier.remove_classes(["colour"])
    assert_sums_are_exact(classifier)


def assert_vectors_are_corrected_by_the_dual_variables(model):
    vectors, duals = model.sums.vectors, model.sums.duals
    expected = np.zeros_like(vectors.corrections)
    for i, label in enumerate(model.stored.labels):
        expected[label] += duals.weights[i].sum() * vectors.of_texts[i]
        np.add.at(expected, duals.competitors[i], -duals.weights[i][:, None] * vectors.of_texts[i])
    assert np.count_nonzero(duals.weights) > 0
    np.testing.assert_allclose(vectors.corrections, expected, atol=1e-3)


def requests(n, seed):
    """Return ``n`` texts of each of 16 classes: one of four verbs with one of four nouns, each in five words."""
    rng, texts, labels = np.random.default_rng(seed), [], []
    for verb, noun in np.ndindex(4, 4):
        for _ in range(n):
            words = [f"verb{verb}{'abcde'[rng.integers(5)]}", f"noun{noun}{'abcde'[rng.integers(5)]}"]
            texts.append(" ".join(rng.permutation([*words, *rng.choice(COMMON, 4)])))
            labels.append(4 * verb + noun)
    return texts, np.array(labels)


def test_vectors_of_texts_follow_every_change(tmp_path):
    texts, labels = requests(6, 0)
    classifier = TextClassifier(random_state=0).fit(texts, labels)
    assert model_of(classifier).vectors is not None
    assert_sums_are_exact(classifier)
    classifier.partial_fit(["a song", "an album", "verb0a"], [16, 16, 17]).partial_fit(["verb1b noun1c"], [5])
    classifier.relabel([0, 7], [3, 16]).remove([1, 20]).remove_classes([9])
    assert_sums_are_exact(classifier)
    assert_vectors_are_corrected_by_the_dual_variables(model_of(classifier))
    asked, _ = requests(4, 1)
    expected = classifier.predict_proba(asked)
    classifier.save(tmp_path / "saved")
    for copied in (TextClassifier.load(tmp_path / "saved"), pickle.loads(pickle.dumps(classifier))):
        np.testing.assert_array_equal(copied.predict_proba(asked), expected)
        np.testing.assert_array_equal(
            *(
                one.partial_fit(["a cloud"], [18]).predict_proba(asked)
                for one in (copied, pickle.loads(pickle.dumps(classifier)))
            )
        )


def test_a_failure_with_vectors_changes_no_answer():
    texts, labels = requests(6, 0)
    classifier = TextClassifier(random_state=0).fit(texts, labels)
    expected = classifier.predict_proba(texts)
    with failing("text._stored_texts.StoredTexts._list_copies", call=1):
        classifier.partial_fit(["a song"], [16])
    np.testing.assert_array_equal(classifier.predict_proba(texts), expected)
    assert_sums_are_exact(classifier)


def test_vectors_are_not_used_where_they_harm():
    assert model_of(TextClassifier(random_state=0).fit(*requests(20, 0))).vectors is not None
    rng, letters = np.random.default_rng(5), list("abcdefghijklmnopqrstuvwxyz")
    words = np.array(["".join(rng.choice(letters, 6)) for _ in range(3144)])
    own, common, labels = words[:144].reshape(12, 12), words[144:], np.repeat(np.arange(12), 100)
    rows = [[rng.choice(own[i]), *common[(3000 * rng.random(6) ** 3).astype(int)]] for i in labels]
    texts = [" ".join(rng.permutation(row)) for row in rows]
    assert model_of(TextClassifier(random_state=0).fit(texts, labels)).vectors is None


def test_texts_of_a_new_class_are_probable_though_its_words_have_no_vectors():
    classifier = TextClassifier(random_state=0).fit(*requests(20, 0))
    assert model_of(classifier).vectors is not None
    learned = [f"run the dishwasher {COMMON[0]}", f"the dishwasher is full {COMMON[1]}"]
    classifier.partial_fit(learned, [16, 16])
    best, chances = classifier.top_classes([f"is the dishwasher clean {COMMON[4]}"], 1)
    assert classifier.classes_[best[0, 0]] == 16
    assert chances[0, 0] > 0.9


def test_many_classes_are_learned_from_one_text_each():
    words = [f"{first}{second}" for first in "bcdfghjklmnpqrstvwxz" for second in ("amo", "elu", "iro", "ony", "una")]
    texts = [f"{one} {other}" for i, one in enumerate(words) for other in words[i + 1 : i + 7]]
    classifier = TextClassifier(random_state=0).fit(texts, np.arange(len(texts)))
    assert classifier.classes_.size > 500  # then frequent n-grams are ignored
    assert np.mean(classifier.predict(texts) == np.arange(len(texts))) > 0.95
    classifier.partial_fit(["zebra crossing"], [len(texts)])
    assert classifier.predict(["crossing zebras"]).tolist() == [len(texts)]


def texts_of_overlapping_classes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``n`` texts of each of 12 classes that use the same 200 words with different probabilities."""
    words = np.array([f"{a}{b}{c}" for a in "bdfgkl" for b in "aeiou" for c in "mnprstz"])[:200]
    chances = 0.4 * np.random.default_rng(7).dirichlet(np.full(200, 0.3), 12) + 0.6 / 200
    rng, labels = np.random.default_rng(seed), np.repeat(np.arange(12), n)
    return np.array([" ".join(rng.choice(words, 12, p=chances[label])) for label in labels], object), labels


def test_classes_that_are_added_later_do_not_take_texts_from_the_others():
    errors = []
    for seed in range(4):
        texts, labels = texts_of_overlapping_classes(15, seed)
        asked, right = texts_of_overlapping_classes(40, 100 + seed)
        early, asked, right = labels < 9, asked[right < 9], right[right < 9]
        live = TextClassifier(random_state=0).fit(texts[early], labels[early])
        for i in np.random.default_rng(0).permutation(np.flatnonzero(~early)):
            live.partial_fit([texts[i]], labels[i : i + 1])
        together = TextClassifier(random_state=0).fit(texts, labels)
        errors.append([np.mean(classifier.predict(asked) != right) for classifier in (live, together)])
    of_live, of_fit = np.mean(errors, axis=0)
    assert of_live < of_fit + 0.02  # the mean of four draws varies by 0.007


def test_texts_of_new_classes_may_come_in_any_batches():
    (texts, labels), (asked, right) = texts_of_overlapping_classes(15, 1), texts_of_overlapping_classes(40, 100)
    early, is_new = labels < 9, right >= 9
    base = pickle.dumps(TextClassifier(random_state=0).fit(texts[early], labels[early]))
    later = np.random.default_rng(0).permutation(np.flatnonzero(~early))
    found = []
    for n_calls in (1, 2, later.size):
        live = pickle.loads(base)
        for part in np.array_split(later, n_calls):
            live.partial_fit(texts[part], labels[part])
        found.append(live.predict(asked) == right)
    found.append(TextClassifier(random_state=0).fit(texts, labels).predict(asked) == right)
    accuracies = np.array([[each[is_new].mean(), each[~is_new].mean()] for each in found])
    assert np.ptp(accuracies, axis=0).max() < 0.06


def test_a_class_in_one_call_or_two_gives_about_the_same_answers():
    differences = []
    for seed in range(6):
        (texts, labels), (asked, _) = (
            texts_of_overlapping_classes(15, seed),
            texts_of_overlapping_classes(40, 100 + seed),
        )
        early, later = labels < 11, np.random.default_rng(0).permutation(np.flatnonzero(labels == 11))
        base = pickle.dumps(TextClassifier(random_state=0).fit(texts[early], labels[early]))
        in_one, in_two = pickle.loads(base), pickle.loads(base)
        in_one.partial_fit(texts[later], labels[later])
        for part in np.array_split(later, 2):
            in_two.partial_fit(texts[part], labels[part])
        differences.append(np.mean(in_one.predict(asked) != in_two.predict(asked)))
    assert np.mean(differences) < 0.08


def test_a_class_affects_texts_that_it_takes_or_that_hold_it_off_too_far():
    texts, labels = texts_of_overlapping_classes(15, 1)
    model = model_of(TextClassifier(random_state=0).fit(texts, labels))
    learned, every = model.labelled(), np.arange(labels.size)
    holds_off = np.any((model.sums.duals.competitors == 3) & (model.sums.duals.weights > 0.0), axis=1)
    assert np.any(holds_off)
    for change, wanted in ((-1.0, holds_off), (2.0, labels != 3)):
        model.sums.vectors.biases[3] += change
        affected = model.sums.affected_by(learned, 3, every, labels.size)
        assert np.array_equal(np.sort(affected), np.flatnonzero(wanted))


def test_few_texts_of_a_class_come_in_one_call():
    texts, labels = shared_words(20, 400, 0)
    asked, right = shared_words(20, 400, 1)
    few = np.flatnonzero(labels == 19)[:10]
    first = np.flatnonzero(labels < 19)
    live = TextClassifier(random_state=0).fit([texts[i] for i in first], labels[first])
    live.partial_fit([texts[i] for i in few], labels[few])
    every = np.concatenate([first, few])
    fitted = TextClassifier(random_state=0).fit([texts[i] for i in every], labels[every])
    found = [np.mean(np.asarray(one.predict(asked))[right == 19] == 19) for one in (live, fitted)]
    assert found[0] >= found[1] - 0.05


def test_corrected_texts_stay_corrected_when_all_texts_are_learned_again():
    texts, labels = shared_words(20, 200, 0)
    asked, right = shared_words(20, 60, 1)
    classifier = TextClassifier(random_state=0).fit(texts, labels)
    other = (right + 7) % 20  # no word indicates the class
    for text, label in zip(asked, other, strict=True):
        classifier.partial_fit([text], [label])
    for _ in range(2):
        assert classifier.predict(asked).tolist() == other.tolist()
        classifier = pickle.loads(pickle.dumps(classifier)).calibrate()


def test_corrections_are_those_of_the_dual_variables(classifier):
    for text in sentences(LATER, 5, 0):
        classifier.partial_fit([text], ["sport"])
    classifier.remove(["t0", "t20"])
    model = model_of(classifier)
    columns, labels, _, corrections = model.sums.entries()
    places = {(int(column), int(label)): i for i, (column, label) in enumerate(zip(columns, labels, strict=True))}
    expected, stored, duals = np.zeros(corrections.size), model.stored, model.sums.duals
    for i, label in enumerate(stored.labels):
        for at in range(stored.hashed.starts[i], stored.hashed.starts[i + 1]):
            column, weight = int(stored.hashed.columns[at]), model.sums.stored[at]
            for competitor, amount in zip(duals.competitors[i], duals.weights[i], strict=True):
                expected[places[column, int(label)]] += amount * weight
                if (place := places.get((column, int(competitor)))) is not None:
                    expected[place] -= amount * weight
    assert np.count_nonzero(duals.weights) > 0
    np.testing.assert_allclose(corrections, expected, atol=1e-4)
    biases = np.bincount(stored.labels, duals.weights.sum(axis=1), model.names.size)
    biases -= np.bincount(duals.competitors.ravel(), duals.weights.ravel(), model.names.size)
    np.testing.assert_allclose(model.sums.vectors.biases, 0.3 * biases, atol=1e-4)


def test_a_text_without_known_words_has_the_most_frequent_class():
    generator = np.random.default_rng(0)
    texts, _ = shared_words(20, 200, 0)
    labels = generator.choice(3, 200, p=[0.1, 0.8, 0.1])  # no word indicates the class
    classifier = TextClassifier(random_state=0).fit(texts, labels)
    assert classifier.predict(["unrelated"]).tolist() == [1]
    classifier.partial_fit(texts, labels).remove(range(10))
    assert classifier.predict(["unrelated"]).tolist() == [1]


def test_wrong_labels_do_little_harm():
    (texts, labels), (asked, right) = texts_of_overlapping_classes(30, 1), texts_of_overlapping_classes(40, 100)
    generator = np.random.default_rng(0)
    wrong = generator.permutation(labels.size)[: labels.size // 5]
    noisy = labels.copy()
    noisy[wrong] = generator.integers(0, 12, wrong.size)
    words = TfidfVectorizer(sublinear_tf=True)
    X, Q = words.fit_transform(texts), words.transform(asked)
    untuned = np.mean(LinearSVC().fit(X, noisy).predict(Q) != right)
    classifier = TextClassifier(random_state=0).fit(texts, noisy)
    assert np.mean(classifier.predict(asked) != right) < untuned - 0.02


def test_a_new_class_is_known_after_a_few_texts(classifier):
    for text in sentences(LATER, 5, 0):
        classifier.partial_fit([text], ["sport"])
    assert classifier.classes_.tolist() == ["food", "music", "sport", "weather"]
    texts, labels = labelled(5, seed=1)
    assert np.mean(classifier.predict(sentences(LATER, 10, 1)) == "sport") >= 0.8
    assert np.mean(classifier.predict(texts) == labels) >= 0.9


def test_doubtful_texts_are_rejected(classifier):
    texts = [*sentences(WORDS["food"], 1, 5), "quantum chromodynamics"]
    sure = classifier.predict_proba(texts).max(axis=1)
    assert sure[0] > sure[1]
    assert classifier.predict(texts, reject_below=float(sure.mean())).tolist() == ["food", ""]


def test_other_settings_are_not_chosen_by_chance():
    slacks = []
    for seed in range(10):
        texts, labels = texts_of_overlapping_classes(20, seed)
        chance = np.random.default_rng(seed).permutation(labels) % 3  # no word indicates the class
        slacks.append(model_of(TextClassifier(random_state=0).fit(texts, chance)).sums.settings.slack)
    assert slacks.count(0.5) >= 6  # the usual one
