"""Search that improves as users mark results as right or wrong.

    python examples/feedback_search.py
    python examples/feedback_search.py --data path/to/folder

Users search for emoji by their current Unicode names, among the original names of 31,879 characters: U+1F63F is stored
as CRYING CAT FACE and searched for as "crying cat". With ``--data`` they search for Bible verses instead. The verses
are stored in the King James Version, and queries come from four other translations (``folder/bible/verses.jsonl.gz``: a
line ``{"text": {"KJV": ..., "ASV": ..., ...}}`` for each verse). The texts are real and the users are simulated:

- Users search for one of ``--popular`` targets. The n-th target is 1 / n times as frequent as the first.
- Queries contain random errors: missing, misspelt and swapped words.
- Users see five results and mark each as right or wrong.

The script runs the same queries on three forests:

static
    does not learn.
marks
    learns from the marks after each block of queries. Some queries explore (``epsilon``), ``update`` receives all marks
    as rewards, and ``teach`` trains the routers on the paths to correct results.
marks and queries
    also stores each query with a correct result as an additional key of this result (``insert``).

At the end, each forest answers new queries for the same targets. A plot shows the mean reward of the first result over
time.

Needs scikit-learn, tabulate, matplotlib and the emoji package.
"""

import argparse
import gzip
import itertools
import json
import random
import re
import string
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import emoji
import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import make_union
from tabulate import tabulate

from cmt_numba import ContextualMemoryTree

MOST_WORDS = 10
"""Maximum number of consecutive words in a query."""

N_SHOWN = 5
"""Number of results that a user sees."""

STATIC, MARKS, ALL = "static", "marks", "marks and queries"
MODES = (STATIC, MARKS, ALL)
"""The kinds of feedback that a search learns from."""

STORED, ASKED = "KJV", ("ASV", "YLT", "Darby", "BBE")


class Collection(NamedTuple):
    """Texts to search, and the wordings of queries."""

    texts: list[str]
    wordings: list[list[str]]  # wordings of each target, the most popular target first
    positions: np.ndarray  # position of each target in the texts


class Queries(NamedTuple):
    """Queries and their targets."""

    texts: list[str]
    wanted: np.ndarray


# Texts and queries


def normalize(text: str) -> str:
    """Return the words of a text in lower case, without accents and punctuation.

    >>> normalize("MAN\N{RIGHT SINGLE QUOTATION MARK}S Pi\N{LATIN SMALL LETTER N WITH TILDE}ata-hat")
    'mans pinata hat'
    """
    letters = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(re.findall(r"[^\W_]+", re.sub("['\N{RIGHT SINGLE QUOTATION MARK}]", "", letters).lower()))


def misspell(word: str, rng: random.Random) -> str:
    """Return the word with a random edit: a letter inserted, deleted or replaced, or two letters swapped."""
    while True:
        i = rng.randrange(len(word) - 1)
        before, letter, following, after = word[:i], word[i], word[i + 1], word[i + 2 :]
        other = rng.choice(string.ascii_lowercase)
        changed = rng.choice([other + letter + following, following, other + following, following + letter])
        misspelt = before + changed + after
        if misspelt != word:
            return misspelt


def remember(text: str, rng: random.Random) -> str:
    """Return a noisy query for a text: consecutive words, one of them deleted, misspelt or swapped."""
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
    """Return queries in random wordings for targets that follow Zipf's law."""
    rng = random.Random(seed)
    places = range(len(wordings))
    drawn = rng.choices(places, weights=[1 / (1 + place) for place in places], k=n)
    return Queries([remember(rng.choice(wordings[place]), rng) for place in drawn], wanted[drawn])


def unlike(held_out: Queries, known: Sequence[str]) -> Queries:
    """Return the distinct queries that do not match a known text, ignoring word order."""
    seen = {" ".join(sorted(text.split())) for text in known}
    kept = []
    for i, query in enumerate(held_out.texts):
        words = " ".join(sorted(query.split()))
        if words not in seen:
            seen.add(words)
            kept.append(i)
    return Queries([held_out.texts[i] for i in kept], held_out.wanted[kept])


def feature_rows(texts: Sequence[str]) -> csr_matrix:
    """Return a sparse row of hashed words and hashed trigrams for each text.

    Trigrams match misspelt words and other endings. Words and trigrams are scaled to unit length separately, so they
    have equal weights.
    """

    def hashed(analyzer: str, length: int) -> HashingVectorizer:
        return HashingVectorizer(
            analyzer=analyzer,
            ngram_range=(length, length),
            n_features=2**15,
            alternate_sign=False,
            token_pattern=r"\S+",  # the default drops one-letter words
            dtype=np.float32,
        )

    vectorizer = make_union(hashed("word", 1), hashed("char_wb", 3))
    return vectorizer.transform([normalize(text) for text in texts]).tocsr()


# The search


class FeedbackSearch:
    """A forest over texts that learns from its users.

    Parameters
    ----------
    texts : list of str
        Texts to search.
    mode : {"static", "marks", "marks and queries"}
        Feedback that the forest learns from.
    n_probes : int, default 16
        Number of leaves to search.
    epsilon : float, default 0.05
        Fraction of queries that explore while learning.
    seed : int, default 0
        Random seed.
    """

    def __init__(
        self, texts: Sequence[str], mode: str, n_probes: int = 16, epsilon: float = 0.05, seed: int = 0
    ) -> None:
        self.mode, self.n_probes, self.epsilon = mode, n_probes, 0.0 if mode == STATIC else epsilon
        self.tree = ContextualMemoryTree(n_trees=4, n_threads=1, random_state=seed)
        self.tree.insert(feature_rows(texts))
        self.text_of = np.arange(len(texts))  # text_of[id]: position of the text

    def first_answers(self, queries: Sequence[str]) -> np.ndarray:
        """Return the position of the best text for each query, without learning."""
        positions: np.ndarray = self.text_of[self.tree.query(feature_rows(queries), n_probes=self.n_probes).ids[:, 0]]
        return positions

    def serve(self, queries: Sequence[str], wanted: np.ndarray) -> np.ndarray:
        """Answer queries, learn from the marks, and return the reward of each first result (0 or 1)."""
        rows = feature_rows(queries)
        hits = self.tree.query(rows, k=N_SHOWN, n_probes=self.n_probes, epsilon=self.epsilon)
        marks = np.where(hits.ids >= 0, self.text_of[hits.ids] == wanted[:, None], False)
        if self.mode != STATIC:
            self.tree.update(rows, hits, marks.astype(float))
            found = np.flatnonzero(marks.any(axis=1))
            self._learn_right_answers(rows[found], hits.ids[found, marks[found].argmax(axis=1)])
        rewards: np.ndarray = marks[:, 0].astype(float)
        return rewards

    def _learn_right_answers(self, rows: csr_matrix, ids: np.ndarray) -> None:
        if ids.size == 0:
            return
        self.tree.teach(rows, ids)
        if self.mode == ALL:
            self.tree.insert(rows)
            self.text_of = np.concatenate([self.text_of, self.text_of[ids]])


class Run(NamedTuple):
    """Rewards by mode."""

    rewards: dict[str, np.ndarray]  # reward of each query
    held_out: dict[str, float]  # mean reward of test queries
    n_held_out: int


def named_characters() -> dict[str, str]:
    """Return the characters with individual names, and their names.

    This excludes 100,000 characters with generated names, such as CJK UNIFIED IDEOGRAPH-4E00, HANGUL SYLLABLE GA and
    TANGUT COMPONENT-001.
    """
    names = {}
    for code_point in range(0x110000):
        name = unicodedata.name(chr(code_point), "")
        by_rule = name.endswith(f"-{code_point:X}") or name.startswith(("HANGUL SYLLABLE ", "TANGUT COMPONENT-"))
        if name and not by_rule:
            names[chr(code_point)] = name
    return names


def emoji_collection(n_popular: int, seed: int = 0) -> Collection:
    """Return the names of all characters, and the current English names of emoji that differ from them."""
    names = named_characters()
    positions = {character: i for i, character in enumerate(names)}
    today: dict[int, str] = {}
    for sequence, data in emoji.EMOJI_DATA.items():
        character = sequence.replace("\N{VARIATION SELECTOR-16}", "")  # the selector requests a coloured glyph
        wording = normalize(data["en"])
        if character in names and wording != normalize(names[character]):
            today[positions[character]] = wording
    order = np.random.default_rng(seed).permutation(len(today))[:n_popular]
    return Collection(
        list(names.values()),
        [[wording] for wording in np.array(list(today.values()))[order].tolist()],
        np.array(list(today))[order],
    )


def verse_collection(folder: Path, n_popular: int, seed: int = 0) -> Collection:
    """Return all verses in one translation, and wordings from the other translations for the targets."""
    with gzip.open(folder / "bible/verses.jsonl.gz", "rt") as file:
        verses = [json.loads(line)["text"] for line in file]
    order = np.random.default_rng(seed).permutation(len(verses))[:n_popular]
    wordings = [[normalize(verses[i][name]) for name in ASKED if verses[i].get(name)] for i in order]
    kept = [i for i, of_verse in enumerate(wordings) if of_verse]
    return Collection([verse[STORED] for verse in verses], [wordings[i] for i in kept], order[kept])


def run(collection: Collection, n_queries: int, n_held_out: int, block: int = 50, seed: int = 0) -> Run:
    """Run a forest of each mode on the same queries, then on test queries."""
    stream = draw_queries(collection.wordings, collection.positions, n_queries, seed + 1)
    held_out = unlike(draw_queries(collection.wordings, collection.positions, n_held_out, seed + 2), stream.texts)
    rewards, on_held_out = {}, {}
    for mode in MODES:
        search = FeedbackSearch(collection.texts, mode, seed=seed)
        blocks = [slice(first, first + block) for first in range(0, n_queries, block)]
        rewards[mode] = np.concatenate([search.serve(stream.texts[part], stream.wanted[part]) for part in blocks])
        on_held_out[mode] = float(np.mean(search.first_answers(held_out.texts) == held_out.wanted))
    return Run(rewards, on_held_out, len(held_out.texts))


def table(result: Run) -> str:
    """Return a table of the mean rewards in each part of the run and on test queries."""
    rows: list[list[object]] = []
    edges = np.linspace(0, result.rewards[STATIC].size, 6).astype(int)
    for first, stop in itertools.pairwise(edges):
        means = (rewards[first:stop].mean() for rewards in result.rewards.values())
        rows.append([f"queries {first + 1:,} to {stop:,}", *means])
    rows.append([f"{result.n_held_out:,} queries held out", *result.held_out.values()])
    return tabulate(rows, ["mean reward of the first answer", *result.rewards], floatfmt=".3f")


def plot(result: Run, path: Path) -> None:
    """Plot the moving average of the reward, over a tenth of the queries."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots()
    window = max(1, result.rewards[STATIC].size // 10)
    for name, rewards in result.rewards.items():
        means = np.convolve(rewards, np.full(window, 1 / window), mode="valid")
        axes.plot(np.arange(window, rewards.size + 1), means, label=name)
    axes.set_xlabel("queries answered")
    axes.set_ylabel(f"mean reward of the last {window}")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main(arguments: Sequence[str] | None = None) -> Run:
    """Run the command line and return the rewards."""
    parser = argparse.ArgumentParser(description="Search that improves as users rate its results.")
    parser.add_argument("--data", type=Path, help="folder of data, to search for Bible verses")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the plot (default: the current one)")
    parser.add_argument("--popular", type=int, default=400, help="number of targets (default: 400)")
    parser.add_argument("--queries", type=int, default=6000, help="number of queries to learn from (default: 6000)")
    parser.add_argument("--held-out", type=int, default=3000, help="number of test queries (default: 3000)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    options = parser.parse_args(arguments)
    for name in ("popular", "queries", "held_out"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if options.data is None:
        collection = emoji_collection(options.popular, options.seed)
    elif (options.data / "bible/verses.jsonl.gz").exists():
        collection = verse_collection(options.data, options.popular, options.seed)
    else:
        parser.error(f"there is no bible/verses.jsonl.gz in {options.data}")
    print(f"{len(collection.texts):,} texts, of which {len(collection.wordings):,} are looked for")
    print(f"Learning from {options.queries:,} searches\n", flush=True)
    result = run(collection, options.queries, options.held_out, seed=options.seed)
    print(table(result))
    path = options.output / "feedback_search.png"
    plot(result, path)
    print(f"\nPlot: {path}")
    return result


if __name__ == "__main__":
    main()
