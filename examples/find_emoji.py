"""Find an emoji by what you call it, in one of eight languages, and teach the search what you mean.

    python examples/find_emoji.py schlafendes gesicht
    python examples/find_emoji.py --means "\N{CRYING CAT FACE}" kitty has the blues

The first run learns, compares what it has learned with other ways to search, and keeps the classifier in a folder of
the user's cache (``--cache`` names another one; the run says where). Later runs open that folder and answer at once.

1,923 emoji are classes of a `CMTClassifier`. At first it knows their English names. Then users of a keyboard look for
emoji: they type what they remember of a name in their own language, and touch the emoji they meant, from which the
classifier learns. Names are those of the Unicode Consortium (in the emoji package); users are simulated: some emoji are
sought more often than others (the n-th most popular one 1 / n times as often as the first), and words are lost,
misspelt and swapped. The table compares searches on queries that nobody typed before.

``--means`` teaches the emoji, or any other text, that your words mean. It is learned and kept at once.

Needs scikit-learn, tabulate, platformdirs and the emoji package.
"""

import argparse
import random
import re
import string
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from platformdirs import user_cache_path
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import make_union
from sklearn.preprocessing import normalize as unit_length
from tabulate import tabulate

from cmt_numba import CMTClassifier

LANGUAGES = ("en", "de", "es", "fr", "id", "it", "pt", "tr")
"""What the users speak. All are written in Latin letters."""

MOST_WORDS = 10
"""So many words of a text are remembered in a row."""

SHRUG = r"¯\_(ツ)_/¯"


class Queries(NamedTuple):
    """What users typed, and what each of them looked for."""

    texts: list[str]
    wanted: np.ndarray


class Result(NamedTuple):
    """How a search did."""

    search: str
    learned_from: str
    answers: np.ndarray
    seconds_to_learn: float | None
    seconds_per_query: float


# Texts and queries


def normalize(text: str) -> str:
    """Return the words of a text in lower case, without accents and punctuation.

    >>> normalize("MAN\N{RIGHT SINGLE QUOTATION MARK}S Pi\N{LATIN SMALL LETTER N WITH TILDE}ata-hat")
    'mans pinata hat'
    """
    letters = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(re.findall(r"[^\W_]+", re.sub("['\N{RIGHT SINGLE QUOTATION MARK}]", "", letters).lower()))


def emoji_names() -> dict[str, list[str]]:
    """Return the distinct names of each emoji, the English one first; those with another skin tone are left out."""
    import emoji  # later runs do without it

    emoji.config.load_language(list(LANGUAGES))
    tones = range(0x1F3FB, 0x1F400)
    names = {}
    for character, data in emoji.EMOJI_DATA.items():
        if data["status"] == emoji.STATUS["fully_qualified"] and not any(ord(c) in tones for c in character):
            names[character] = list(dict.fromkeys(normalize(data[language]) for language in LANGUAGES))
    return names


def misspell(word: str, rng: random.Random) -> str:
    """Return the word with one letter inserted, left out or replaced, or with two neighbours swapped."""
    while True:
        i = rng.randrange(len(word) - 1)
        before, letter, following, after = word[:i], word[i], word[i + 1], word[i + 2 :]
        other = rng.choice(string.ascii_lowercase)
        changed = rng.choice([other + letter + following, following, other + following, following + letter])
        misspelt = before + changed + after
        if misspelt != word:
            return misspelt


def remember(text: str, rng: random.Random) -> str:
    """Return what a user remembers of a text: a few words in a row, one lost, misspelt or swapped with another."""
    words = text.split()
    first = rng.randrange(max(1, len(words) - MOST_WORDS + 1))
    words = words[first : first + MOST_WORDS]
    change = rng.randrange(3)
    i = rng.randrange(len(words))
    if change == 0 and len(words) > 1:
        del words[i]
    elif change == 1 and len(words[i]) >= 4:
        words[i] = misspell(words[i], rng)
    elif change == 2:
        j = rng.randrange(len(words))
        words[i], words[j] = words[j], words[i]
    return " ".join(words)


def draw_queries(wordings: Sequence[Sequence[str]], wanted: np.ndarray, n: int, seed: int) -> Queries:
    """Return queries of users for things of several wordings each; what they want follows Zipf's law."""
    rng = random.Random(seed)
    places = range(len(wordings))
    drawn = rng.choices(places, weights=[1 / (1 + place) for place in places], k=n)
    return Queries([remember(rng.choice(wordings[place]), rng) for place in drawn], wanted[drawn])


def unlike(held_out: Queries, known: Sequence[str]) -> Queries:
    """Return the distinct queries that are not among the texts known, ignoring word order."""
    seen = {" ".join(sorted(text.split())) for text in known}
    kept = []
    for i, query in enumerate(held_out.texts):
        words = " ".join(sorted(query.split()))
        if words not in seen:
            seen.add(words)
            kept.append(i)
    return Queries([held_out.texts[i] for i in kept], held_out.wanted[kept])


def feature_rows(texts: Sequence[str]) -> csr_matrix:
    """Return a sparse row of features for each text: hashed words beside hashed groups of three letters.

    Whole words carry the meaning; groups of letters still match where a word is misspelt or has another ending. Both
    halves of a row have length 1, so they weigh the same. Hashing needs no training, so that new words can come at any
    time.
    """

    def hashed(analyzer: str, length: int) -> HashingVectorizer:
        return HashingVectorizer(
            analyzer=analyzer,
            ngram_range=(length, length),
            n_features=2**15,
            alternate_sign=False,
            token_pattern=r"\S+",  # the default would leave out words of one letter
            dtype=np.float32,
        )

    vectorizer = make_union(hashed("word", 1), hashed("char_wb", 3))
    return vectorizer.transform([normalize(text) for text in texts]).tocsr()


# Searches


def nearest(keys: csr_matrix, labels: np.ndarray, rows: csr_matrix, batch: int = 16) -> np.ndarray:
    """Return the label of the most similar key for each row, by a matrix product with all keys."""
    by_feature = keys.T.tocsr()
    # The products of one batch, a number for each query and key, should stay in the processor's cache.
    batches = (rows[start : start + batch] for start in range(0, rows.shape[0], batch))
    return np.concatenate([labels[(one @ by_feature).toarray().argmax(axis=1)] for one in batches])


def class_means(keys: csr_matrix, labels: np.ndarray) -> tuple[csr_matrix, np.ndarray]:
    """Return the mean key of each class, with length 1, and the classes."""
    classes, places = np.unique(labels, return_inverse=True)
    ones = (np.ones(len(labels), np.float32), (places, np.arange(len(labels))))
    return unit_length(csr_matrix(ones, shape=(classes.size, len(labels))) @ keys), classes


def linear_model(keys: csr_matrix, labels: np.ndarray, rows: csr_matrix) -> tuple[np.ndarray, float, float]:
    """Return the answers of scikit-learn's LinearSVC, the seconds to learn, and those per query.

    Its default tolerance takes half as long again, for an error that is lower by 0.002.
    """
    from sklearn.svm import LinearSVC

    used = np.unique(keys.indices)
    start = time.process_time()
    model = LinearSVC(tol=0.1).fit(keys[:, used], labels)
    learned = time.process_time()
    answers: np.ndarray = model.predict(rows[:, used])
    return answers, learned - start, (time.process_time() - learned) / rows.shape[0]


def compare(
    classifier: CMTClassifier, names: dict[str, list[str]], picks: Queries, asked: Queries, *, linear: bool
) -> list[Result]:
    """Teach the classifier, and return its answers and those of other searches; times are of the processor.

    The linear model learns in a process of its own meanwhile, for it takes the longest.
    """
    from cmt_numba.text import BM25Vectorizer  # later runs do without it

    texts, labels = [of_one[0] for of_one in names.values()], np.array(list(names))
    n_names, all_labels = len(texts), np.concatenate([labels, picks.wanted])
    all_texts = texts + picks.texts
    keys, rows = feature_rows(all_texts), feature_rows(asked.texts)
    n = len(asked.texts)
    results: list[Result] = []

    def measured(search: str, learned_from: str, stored: csr_matrix, of: np.ndarray, asked_rows: csr_matrix) -> None:
        start = time.process_time()
        answers = nearest(stored, of, asked_rows)
        results.append(Result(search, learned_from, answers, None, (time.process_time() - start) / n))

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) if linear else _nobody() as workers:
        trained: Future[Any] | None = workers.submit(linear_model, keys, all_labels, rows) if linear else None
        with waiting("compiling, once on this computer"):
            some = CMTClassifier(random_state=0).fit(keys[: n_names + 100], all_labels[: n_names + 100])
            some.predict(rows[:10])
            some.partial_fit(keys[:2], [all_labels[0], "new"])
        with waiting(f"learning {n_names:,} names and {len(picks.texts):,} answered queries"):
            start = time.process_time()
            classifier.fit(keys, all_labels)
            seconds = time.process_time() - start
        with waiting("searching in other ways"):
            bm25 = BM25Vectorizer()
            stored = bm25.fit_transform(all_texts)
            by_words = bm25.transform(asked.texts)
            measured("BM25", "names", stored[:n_names], labels, by_words)
            measured("BM25", "names and picks", stored, all_labels, by_words)
            measured("exact search", "names", keys[:n_names], labels, rows)
            measured("exact search", "names and picks", keys, all_labels, rows)
            measured("class means", "names and picks", *class_means(keys, all_labels), rows)
        if trained is not None:
            with waiting("waiting for the linear model"):
                answers, learned, per_query = trained.result()
            results.append(Result("linear model", "names and picks", answers, learned, per_query))
    start = time.process_time()
    answers = classifier.predict(rows)
    results.append(Result("CMTClassifier", "names and picks", answers, seconds, (time.process_time() - start) / n))
    return results


@contextmanager
def _nobody() -> Iterator[Any]:
    yield None


@contextmanager
def waiting(what: str, every: float = 1.0) -> Iterator[None]:
    """Show what is being done and for how many seconds, while it lasts."""
    done, start = threading.Event(), time.perf_counter()
    on_terminal = sys.stderr.isatty()

    def show() -> None:
        while True:
            finished = done.wait(every)
            if finished or on_terminal:
                start_of_line, end_of_line = "\r" if on_terminal else "", "\n" if finished else ""
                line = f"{start_of_line}{what}: {time.perf_counter() - start:.0f} s{end_of_line}"
                print(line, end="", file=sys.stderr, flush=True)
            if finished:
                return

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def table(results: Sequence[Result], wanted: np.ndarray) -> str:
    """Return the results as a table to print."""
    rows = [
        [
            result.search,
            result.learned_from,
            f"{np.mean(result.answers != wanted):.3f}",
            "" if result.seconds_to_learn is None else f"{result.seconds_to_learn:.1f}",
            f"{1e6 * result.seconds_per_query:.0f}",
        ]
        for result in results
    ]
    headers = ["search", "knows", "error", "seconds\nto learn", "microseconds\nper query"]
    return tabulate(rows, headers, disable_numparse=True, colalign=("left", "left", "right", "right", "right"))


# The classifier and its user


def learn(classifier: CMTClassifier, n_picks: int, n_asked: int, seed: int, *, linear: bool = True) -> list[Result]:
    """Have a classifier learn, print how it compares with other searches, and return that."""
    with waiting("reading names"):
        names = emoji_names()
        by_popularity = list(names)
        random.Random(seed).shuffle(by_popularity)
        wordings, wanted = [names[character] for character in by_popularity], np.array(by_popularity)
        picks = draw_queries(wordings, wanted, n_picks, seed + 1)
        english = [of_one[0] for of_one in names.values()]
        asked = unlike(draw_queries(wordings, wanted, n_asked, seed + 2), english + picks.texts)
    results = compare(classifier, names, picks, asked, linear=linear)
    print(f"\n{len(asked.texts):,} queries that nobody typed before, for {len(names):,} emoji:\n")
    print(table(results, asked.wanted))
    return results


def answer_lines(classifier: CMTClassifier, text: str, count: int) -> str:
    """Return the best emoji for a text as lines to print."""
    probabilities = classifier.predict_proba(feature_rows([text]))[0]
    best = np.argsort(-probabilities, kind="stable")[:count]
    return "\n".join(f"{probabilities[i]:6.1%}  {classifier.classes_[i]}  {described(classifier, i)}" for i in best)


def described(classifier: CMTClassifier, place: int) -> str:
    """Return the names of the characters of a class, but for those that only join or vary others."""
    names = [unicodedata.name(character, "") for character in str(classifier.classes_[place])]
    return ", ".join(name.lower() for name in names if name and "SELECTOR" not in name and "JOINER" not in name)


def teach(classifier: CMTClassifier, text: str, meant: str, again: str) -> None:
    """Have a classifier learn what a text means, and print what it answers to another one before and after."""
    rows = feature_rows([again])
    before = classifier.predict(rows)[0]
    new = "" if meant in classifier.classes_ else ", which is new"
    start = time.perf_counter()
    classifier.partial_fit(feature_rows([text]), [meant])
    seconds = time.perf_counter() - start
    after = classifier.predict(rows)[0]
    print(f'"{text}" means {meant}{new} ({1e3 * seconds:.0f} ms). "{again}": before {before}, now {after}')


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description="Find an emoji by what you call it.")
    parser.add_argument("words", nargs="+", help='what to look for, such as "schlafendes gesicht"')
    parser.add_argument("--means", metavar="EMOJI", help="learn that the words mean this emoji, or any other text")
    parser.add_argument("--count", type=positive, default=5, help="how many answers to show (default: 5)")
    parser.add_argument("--cache", type=Path, help="folder of the classifier (default: in the user's cache)")
    parser.add_argument("--again", action="store_true", help="learn and compare again, forgetting what was taught")
    parser.add_argument(
        "--without-linear", action="store_true", help="do not compare with a linear model, which is slow"
    )
    parser.add_argument("--picks", type=positive, default=12_000, help="queries to learn from (default: 12,000)")
    parser.add_argument("--asked", type=positive, default=6_000, help="queries drawn to compare (default: 6,000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: 0)")
    return parser


def positive(text: str) -> int:
    """Return the number that an option was given, which must be at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    text = " ".join(options.words)
    if not normalize(text):
        parser.error("there is no letter or digit in the query")
    folder = options.cache or user_cache_path("cmt_numba", appauthor=False) / "find_emoji"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with CMTClassifier.open(folder, random_state=options.seed) as classifier:
        if options.again or not hasattr(classifier, "classes_"):
            learn(classifier, options.picks, options.asked, options.seed, linear=not options.without_linear)
            print("\nCorrected, and given a new class, as it runs:")
            teach(classifier, "kitty has the blues", "\N{CRYING CAT FACE}", "kitty's got the blues")
            teach(classifier, "kaomoji shrug", SHRUG, "a shrug kaomoji")
            classifier.checkpoint()  # later runs open it at once
            print(f"\nKept in {folder}, which later runs open.\n")
        if options.means:
            teach(classifier, text, options.means, text)
        print(answer_lines(classifier, text, options.count))


if __name__ == "__main__":
    main()
