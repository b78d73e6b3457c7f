"""Find a Unicode character by describing it.

Python knows the names of all Unicode characters. This script stores some 32,000 of them in a Contextual Memory Tree, a
single memory for each character, and then looks up the names closest to your own words, misspelt or not::

    python examples/find_character.py crying cat face
    python examples/find_character.py --count 3 "smilling face with sunglases"

How good and how fast is the tree, compared with looking at every name? ::

    python examples/find_character.py --evaluate

searches with two kinds of queries whose right answer is known: what the Unicode Consortium calls its emoji nowadays
(U+1F63F CRYING CAT FACE became "crying cat"), and names in which a word was dropped or misspelt. Some of them fit
several characters equally well and some share no word with the name, so exact search makes mistakes as well. That is
the error to compare a tree's with.

Needs scikit-learn and tabulate, and the emoji package for ``--evaluate``.
"""

import argparse
import random
import re
import statistics
import string
import time
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import FeatureUnion, make_union
from tabulate import tabulate

from cmt_numba import ContextualMemoryTree

LEAVES_SEARCHED = {1: (1, 4, 16, 64), 8: (8, 16, 32, 64)}
"""What ``--evaluate`` tries: for each number of trees, the leaves searched for a query in all trees together."""


class Character(NamedTuple):
    """A Unicode character and its official name."""

    code_point: int
    name: str

    def __str__(self) -> str:
        """Return the character as a terminal can show it: combining marks on a dotted circle, controls as nothing."""
        text = chr(self.code_point)
        if not text.isprintable():
            return ""
        return "\N{DOTTED CIRCLE}" + text if unicodedata.category(text).startswith("M") else text


class QuerySet(NamedTuple):
    """Queries with known answers."""

    title: str
    texts: list[str]
    answers: np.ndarray
    """The position of each query's character in the list of characters."""


class Result(NamedTuple):
    """How one way of searching did: the errors and seconds per query have one entry for each query set."""

    search: str
    leaves: int | None
    errors: list[float]
    seconds: list[float]
    insertions_per_second: float
    nbytes: int


# Characters and queries


def named_characters() -> list[Character]:
    """Return the characters that have a name of their own.

    Left out are the 100,000 characters whose names follow a rule, such as CJK UNIFIED IDEOGRAPH-4E00 with the code
    point as its end, HANGUL SYLLABLE GA with the sounds it is made of, or TANGUT COMPONENT-001 with a number: their
    names do not describe them.
    """
    characters = []
    for code_point in range(0x110000):
        name = unicodedata.name(chr(code_point), "")
        by_rule = name.endswith(f"-{code_point:X}") or name.startswith(("HANGUL SYLLABLE ", "TANGUT COMPONENT-"))
        if name and not by_rule:
            characters.append(Character(code_point, name))
    return characters


def normalize(text: str) -> str:
    """Return the words of a text in lower case, without accents and punctuation.

    >>> normalize("MAN\N{RIGHT SINGLE QUOTATION MARK}S Pi\N{LATIN SMALL LETTER N WITH TILDE}ata-hat")
    'mans pinata hat'
    """
    letters = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(re.findall(r"[^\W_]+", re.sub("['\N{RIGHT SINGLE QUOTATION MARK}]", "", letters).lower()))


def emoji_queries(characters: Sequence[Character]) -> QuerySet:
    """Return the present-day English names of emoji whose wording differs from the character's name."""
    import emoji  # only the evaluation needs this package

    positions = {character.code_point: i for i, character in enumerate(characters)}
    texts: dict[int, str] = {}
    for sequence, data in emoji.EMOJI_DATA.items():
        single = sequence.replace("\N{VARIATION SELECTOR-16}", "")  # the selector asks for a colourful picture
        position = positions.get(ord(single)) if len(single) == 1 else None
        text = normalize(data["en"])
        if position is not None and text != normalize(characters[position].name):
            texts[position] = text
    return QuerySet("emoji", list(texts.values()), np.array(list(texts), dtype=np.int64))


def damaged_queries(characters: Sequence[Character], count: int, seed: int) -> QuerySet:
    """Return up to ``count`` names, drawn at random: half of them lack a word, the others have a misspelt one."""
    rng = random.Random(seed)
    texts: list[str] = []
    answers: list[int] = []
    for position in rng.sample(range(len(characters)), len(characters)):
        if len(texts) == count:
            break
        words = normalize(characters[position].name).split()
        long_words = [i for i, word in enumerate(words) if len(word) >= 4 and word.isalpha()]
        if rng.random() < 0.5 and len(words) >= 3:
            del words[rng.randrange(len(words))]
        elif long_words:
            i = rng.choice(long_words)
            words[i] = misspell(words[i], rng)
        else:
            continue
        texts.append(" ".join(words))
        answers.append(position)
    return QuerySet("damaged", texts, np.array(answers, dtype=np.int64))


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


# Features and search


def make_vectorizer() -> FeatureUnion:
    """Return what turns normalized texts into sparse rows: hashed words beside hashed groups of three letters.

    Whole words carry the meaning; groups of letters still match where a word is misspelt or has another ending. Both
    halves of a row have length 1, so they weigh the same. Rare words get no extra weight, because misspelt words
    would be among the rarest. Hashing needs no training, so new names can be added at any time.
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

    return make_union(hashed("word", 1), hashed("char_wb", 3))


def feature_rows(texts: Sequence[str]) -> csr_matrix:
    """Return one sparse row of features for each text."""
    return make_vectorizer().transform([normalize(text) for text in texts]).tocsr()


class ExactSearch:
    """Nearest neighbours by looking at every key: a sparse matrix product, which uses a single thread."""

    # The products of one batch, a number for each query and key, should stay in the processor's cache.
    BATCH = 16

    def __init__(self, keys: csr_matrix) -> None:
        self.keys_by_feature = keys.T.tocsr()

    @property
    def nbytes(self) -> int:
        """Memory used, in bytes."""
        matrix = self.keys_by_feature
        return matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes

    def query(self, rows: csr_matrix) -> np.ndarray:
        """Return the position of the best key for each row, given that all keys have the same length."""
        batches = (rows[start : start + self.BATCH] for start in range(0, rows.shape[0], self.BATCH))
        return np.concatenate([(batch @ self.keys_by_feature).toarray().argmax(axis=1) for batch in batches])


# Evaluation


def measure(
    query: Callable[[csr_matrix], np.ndarray], query_sets: Sequence[QuerySet], rows: Sequence[csr_matrix]
) -> tuple[list[float], list[float]]:
    """Return the error and the seconds per query for each query set, the latter a median of three runs."""
    errors, seconds = [], []
    for query_set, its_rows in zip(query_sets, rows, strict=True):
        times = []
        for _ in range(3):
            start = time.perf_counter()
            found = query(its_rows)
            times.append(time.perf_counter() - start)
        errors.append(float(np.mean(found != query_set.answers)))
        seconds.append(statistics.median(times) / its_rows.shape[0])
    return errors, seconds


def best_ids(tree: ContextualMemoryTree, n_leaves: int, rows: csr_matrix) -> np.ndarray:
    """Return the id of the best memory that the tree finds for each row."""
    return tree.query(rows, n_probes=n_leaves).ids[:, 0]


def compile_kernels(keys: csr_matrix) -> None:
    """Have everything compiled (or loaded from the cache on disk), so that no timing includes it."""
    some = keys[:500]
    for n_trees in LEAVES_SEARCHED:
        tree = ContextualMemoryTree(n_trees=n_trees, n_threads=1)
        tree.insert(some)
        tree.query(some, n_probes=2 * n_trees)


def evaluate(characters: Sequence[Character], query_sets: Sequence[QuerySet], seed: int) -> list[Result]:
    """Compare trees with exact search, all on a single thread."""
    keys = feature_rows([character.name for character in characters])
    rows = [feature_rows(query_set.texts) for query_set in query_sets]
    compile_kernels(keys)

    start = time.perf_counter()
    exact = ExactSearch(keys)
    insertions_per_second = len(characters) / (time.perf_counter() - start)
    errors, seconds = measure(exact.query, query_sets, rows)
    results = [Result("exact", None, errors, seconds, insertions_per_second, exact.nbytes)]

    for n_trees, numbers_of_leaves in LEAVES_SEARCHED.items():
        tree = ContextualMemoryTree(n_trees=n_trees, n_threads=1, random_state=seed)
        start = time.perf_counter()
        tree.insert(keys)
        insertions_per_second = len(characters) / (time.perf_counter() - start)
        search = "1 tree" if n_trees == 1 else f"{n_trees} trees"
        for n_leaves in numbers_of_leaves:
            errors, seconds = measure(partial(best_ids, tree, n_leaves), query_sets, rows)
            results.append(Result(search, n_leaves, errors, seconds, insertions_per_second, tree.nbytes))
    return results


def evaluation_table(results: Sequence[Result], query_sets: Sequence[QuerySet]) -> str:
    """Return the results as a table to print."""
    headers = ["search", "leaves"]
    for query_set in query_sets:
        headers += [f"{query_set.title}:\nerror", f"{query_set.title}:\nmicroseconds"]
    headers += ["inserted\nper second", "memory\nin MB"]
    table = []
    for result in results:
        row = [result.search, "all" if result.leaves is None else str(result.leaves)]
        for error, seconds in zip(result.errors, result.seconds, strict=True):
            row += [f"{error:.1%}", f"{1e6 * seconds:.1f}"]
        table.append([*row, f"{result.insertions_per_second:,.0f}", f"{result.nbytes / 1e6:.1f}"])
    alignment = ["left"] + ["right"] * (len(headers) - 1)
    return tabulate(table, headers, disable_numparse=True, colalign=alignment)


# Finding


def find(
    characters: Sequence[Character], tree: ContextualMemoryTree, text: str, count: int, n_probes: int | None = None
) -> list[tuple[Character, float]]:
    """Return the characters that best fit the text, best first, each with its score.

    The tree must hold the names of ``characters`` in their order, so that ids are positions in the list.
    """
    hits = tree.query(feature_rows([text]), k=count, n_probes=n_probes)
    return [(characters[i], float(score)) for i, score in zip(hits.ids[0], hits.scores[0], strict=True) if i >= 0]


def answer_table(answers: Sequence[tuple[Character, float]]) -> str:
    """Return the answers as a table to print.

    The characters come last: they may be wide, or written from right to left, which would shift what follows.
    """
    table = [
        [f"{score:.2f}", f"U+{character.code_point:04X}", character.name, str(character)]
        for character, score in answers
    ]
    return tabulate(table, ["score", "code point", "name", "character"], disable_numparse=True)


def positive(text: str) -> int:
    """Return the number that an option was given, which must be at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description="Find a Unicode character by describing it.")
    parser.add_argument("words", nargs="*", help='what to look for, such as "crying cat face"')
    parser.add_argument("--count", type=positive, default=10, help="how many characters to show (default: 10)")
    parser.add_argument("--trees", type=positive, default=8, help="how many trees to search (default: 8)")
    parser.add_argument("--probes", type=positive, help="how many leaves to search, in all trees together")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: 0)")
    parser.add_argument(
        "--evaluate",
        action="store_true",
        help="measure error, speed and memory of 1 tree and of 8 trees beside exact search, on a single thread",
    )
    return parser


def print_evaluation(characters: Sequence[Character], seed: int) -> None:
    """Evaluate and print what was found."""
    query_sets = [emoji_queries(characters), damaged_queries(characters, count=3000, seed=seed)]
    emoji, damaged = query_sets
    print(f"{len(characters):,} names, searched on a single thread for")
    print(f"  {len(emoji.texts):,} present-day names of emoji that differ from the Unicode name (emoji)")
    print(f"  {len(damaged.texts):,} names with a word dropped or misspelt (damaged)\n")
    print(evaluation_table(evaluate(characters, query_sets, seed), query_sets))


def print_answers(characters: Sequence[Character], text: str, options: argparse.Namespace) -> None:
    """Insert all names, find the best for the text and print them."""
    tree = ContextualMemoryTree(n_trees=options.trees, random_state=options.seed)
    keys = feature_rows([character.name for character in characters])
    start = time.perf_counter()
    tree.insert(keys)
    print(f"Inserted {len(tree):,} names in {time.perf_counter() - start:.1f} seconds.\n")
    answers = find(characters, tree, text, options.count, options.probes)
    print(answer_table(answers) if answers else "Nothing found.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    text = " ".join(options.words)
    if options.evaluate:
        print_evaluation(named_characters(), options.seed)
    elif normalize(text):
        print_answers(named_characters(), text, options)
    elif options.words:
        parser.error("there is no letter or digit in the query")
    else:
        parser.print_help()


if __name__ == "__main__":
    main()
