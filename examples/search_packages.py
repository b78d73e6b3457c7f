"""Search software packages by their purpose, filter results, and train the search.

    python examples/search_packages.py packages/summaries.jsonl.gz "plot data on a map" --prefix python --right folium

The file has a line ``{"name": ..., "summary": ...}`` for each package. The first run learns word vectors from the
summaries, which takes several minutes for 300,000 summaries; ``--limit`` reads only the first ones. The store is a
folder next to the file, so later runs reuse it and keep the feedback.
"""

import argparse
import gzip
import json
import pickle
import sys
from pathlib import Path

import numpy as np

from cmt_numba import MemoryStore
from cmt_numba.text import SubwordVectors


def read(path: Path, limit: int) -> list[dict[str, str]]:
    """Return the first packages of a file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line, _ in zip(lines, range(limit), strict=False)]


def learn_vectors(path: Path, packages: list[dict[str, str]]) -> SubwordVectors:
    """Return word vectors learned from the summaries, or load them from ``path``."""
    if not path.exists():
        learned = SubwordVectors(n_components=64, random_state=0).fit([package["summary"] for package in packages])
        path.write_bytes(pickle.dumps(learned))
    vectors: SubwordVectors = pickle.loads(path.read_bytes())  # safe to unpickle: this script wrote the file
    return vectors


def fill(store: MemoryStore, packages: list[dict[str, str]], vectors: SubwordVectors) -> None:
    """Store all packages with at least one known word under their names."""
    X = vectors.transform([package["summary"] for package in packages])
    known = np.flatnonzero(np.linalg.norm(X, axis=1) > 0)
    names = [packages[i]["name"] for i in known]
    payloads = [{"summary": packages[i]["summary"], "prefix": packages[i]["name"].split("-")[0]} for i in known]
    store.upsert(names, X[known], payloads)
    store.create_index("prefix")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Search software packages by their purpose.")
    parser.add_argument("file", type=Path, help="gzip-compressed file of JSON lines with packages")
    parser.add_argument("query")
    parser.add_argument("--prefix", help="only packages with this name or prefix")
    parser.add_argument("--right", help="name of the package that you were looking for; the search learns it")
    parser.add_argument("--limit", type=int, default=300_000)
    given = parser.parse_args()

    print("Reading package summaries, and learning word vectors from them at the first run", file=sys.stderr)
    packages = read(given.file, given.limit)
    vectors = learn_vectors(given.file.with_suffix(f".{given.limit}.vectors"), packages)
    with MemoryStore(given.file.with_suffix(f".{given.limit}.store")) as store:
        if len(store) == 0:
            fill(store, packages, vectors)
        asked = vectors.transform([given.query])
        if given.right is not None:
            store.feedback(asked, [given.right], [1.0])
        where = None if given.prefix is None else {"prefix": given.prefix}
        for result in store.query(asked, 5, where)[0]:
            print(f"{result.score:.3f}  {result.key}: {result.payload['summary']}")


if __name__ == "__main__":
    main()
