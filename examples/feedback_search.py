"""A search that gets better as its users mark what it finds as right or wrong.

    python examples/feedback_search.py
    python examples/feedback_search.py --data path/to/folder

Users look for emoji by what the Unicode Consortium calls them nowadays, among the names of 31,879 characters: U+1F63F
is stored as CRYING CAT FACE and asked for as "crying cat". With ``--data`` they look for Bible verses instead, stored
in the King James Version and remembered in one of four other translations (``folder/bible/verses.jsonl.gz``: a line
``{"text": {"KJV": ..., "ASV": ..., ...}}`` for each verse). Texts are real; users are simulated:

- What is looked for is drawn from ``--popular`` things, the n-th most popular one 1 / n times as often as the first.
- Users write down what they remember: words are lost, misspelt and swapped at random.
- They see five answers, mark as right those that are what they look for, and all others as wrong.

The same forest answers the same stream three times:

static
    as it is;
marks
    learning from the marks after each block of queries: now and then it explores (``epsilon``), ``update`` takes all
    marks as rewards, and ``teach`` shows the routers the way to the answers that were marked as right;
marks and queries
    learning from the marks, and storing each query with an answer that was marked as right as one more key of what it
    found (``insert``).

In the end each is asked queries that are like those of the stream, but were not among them. A plot shows the mean
reward of the first answer over time.

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
"""So many words of a text are remembered in a row."""

N_SHOWN = 5
"""Answers that a user sees."""

STATIC, MARKS, ALL = "static", "marks", "marks and queries"
MODES = (STATIC, MARKS, ALL)
"""What a search learns from."""

STORED, ASKED = "KJV", ("ASV", "YLT", "Darby", "BBE")


class Collection(NamedTuple):
    """Texts to find, and how users put those that are looked for."""

    texts: list[str]
    wordings: list[list[str]]  # for each thing looked for, the most popular first
    positions: np.ndarray  # where it is among the texts


class Queries(NamedTuple):
    """What users typed, and what each of them looked for."""

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


# The search


class FeedbackSearch:
    """A forest over texts that learns from its users.

    Parameters
    ----------
    texts : list of str
        What can be found.
    mode : {"static", "marks", "marks and queries"}
        What it learns from.
    n_probes : int, default 16
        Leaves to search.
    epsilon : float, default 0.05
        Share of the queries that explore while learning.
    seed : int, default 0
        Seed of everything random.
    """

    def __init__(
        self, texts: Sequence[str], mode: str, n_probes: int = 16, epsilon: float = 0.05, seed: int = 0
    ) -> None:
        self.mode, self.n_probes, self.epsilon = mode, n_probes, 0.0 if mode == STATIC else epsilon
        self.tree = ContextualMemoryTree(n_trees=4, n_threads=1, random_state=seed)
        self.tree.insert(feature_rows(texts))
        self.text_of = np.arange(len(texts))  # the position of the text that each memory is a key of

    def first_answers(self, queries: Sequence[str]) -> np.ndarray:
        """Return the position of the best text for each query, learning nothing."""
        positions: np.ndarray = self.text_of[self.tree.query(feature_rows(queries), n_probes=self.n_probes).ids[:, 0]]
        return positions

    def serve(self, queries: Sequence[str], wanted: np.ndarray) -> np.ndarray:
        """Answer queries, learn from the marks, and return the reward of each first answer: 1 if it is right."""
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
    """What the forests earned, by mode."""

    rewards: dict[str, np.ndarray]  # of each query of the stream
    held_out: dict[str, float]  # mean reward of queries that were not in the stream
    n_held_out: int


def named_characters() -> dict[str, str]:
    """Return the characters that have a name of their own, and these names.

    Left out are the 100,000 characters whose names follow a rule, such as CJK UNIFIED IDEOGRAPH-4E00 with the code
    point as its end, HANGUL SYLLABLE GA with the sounds it is made of, or TANGUT COMPONENT-001 with a number: their
    names do not describe them.
    """
    names = {}
    for code_point in range(0x110000):
        name = unicodedata.name(chr(code_point), "")
        by_rule = name.endswith(f"-{code_point:X}") or name.startswith(("HANGUL SYLLABLE ", "TANGUT COMPONENT-"))
        if name and not by_rule:
            names[chr(code_point)] = name
    return names


def emoji_collection(n_popular: int, seed: int = 0) -> Collection:
    """Return the names of all characters, and today's English names of emoji that differ from them."""
    names = named_characters()
    positions = {character: i for i, character in enumerate(names)}
    today: dict[int, str] = {}
    for sequence, data in emoji.EMOJI_DATA.items():
        character = sequence.replace("\N{VARIATION SELECTOR-16}", "")  # the selector asks for a colourful picture
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
    """Return all verses in one translation, and some of them in the others."""
    with gzip.open(folder / "bible/verses.jsonl.gz", "rt") as file:
        verses = [json.loads(line)["text"] for line in file]
    order = np.random.default_rng(seed).permutation(len(verses))[:n_popular]
    wordings = [[normalize(verses[i][name]) for name in ASKED if verses[i].get(name)] for i in order]
    kept = [i for i, of_verse in enumerate(wordings) if of_verse]
    return Collection([verse[STORED] for verse in verses], [wordings[i] for i in kept], order[kept])


def run(collection: Collection, n_queries: int, n_held_out: int, block: int = 50, seed: int = 0) -> Run:
    """Let a forest of each mode answer the same stream, then queries that were not in it."""
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
    """Return the mean rewards over the parts of the stream, and of the queries held out, as a table to print."""
    rows: list[list[object]] = []
    edges = np.linspace(0, result.rewards[STATIC].size, 6).astype(int)
    for first, stop in itertools.pairwise(edges):
        means = (rewards[first:stop].mean() for rewards in result.rewards.values())
        rows.append([f"queries {first + 1:,} to {stop:,}", *means])
    rows.append([f"{result.n_held_out:,} queries held out", *result.held_out.values()])
    return tabulate(rows, ["mean reward of the first answer", *result.rewards], floatfmt=".3f")


def plot(result: Run, path: Path) -> None:
    """Save the mean reward over the last tenth of the stream, along the stream."""
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
    """Run the command line; return what was earned."""
    parser = argparse.ArgumentParser(description="Search that improves as users rate its results.")
    parser.add_argument("--data", type=Path, help="folder of data, to search for Bible verses")
    parser.add_argument("--output", type=Path, default=Path(), help="folder for the plot (default: the current one)")
    parser.add_argument("--popular", type=int, default=400, help="number of targets (default: 400)")
    parser.add_argument("--queries", type=int, default=6000, help="number of queries in the stream (default: 6000)")
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
    print(f"{len(collection.texts):,} texts, of which {len(collection.wordings):,} are looked for\n")
    result = run(collection, options.queries, options.held_out, seed=options.seed)
    print(table(result))
    path = options.output / "feedback_search.png"
    plot(result, path)
    print(f"\nPlot: {path}")
    return result


if __name__ == "__main__":
    main()
