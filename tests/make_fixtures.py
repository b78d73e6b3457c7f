"""Write the files that this version of the format shall still load when it is an old one.

To be run once for each version of the format, before its first release; files of earlier versions stay as they are.

    python tests/make_fixtures.py
"""

import json
from pathlib import Path
from typing import Any

import scipy.sparse
from saved import dense_rows, objects, sparse_rows

from cmt_numba import ContextualMemoryTree
from cmt_numba.persistence import FORMAT_VERSION

FIXTURES = Path(__file__).parent / "fixtures"
_NAMES = (
    *("empty", "dense forest", "sparse", "bounded", "classifier", "sparse classifier", "pair classifier"),
    *("retriever by value", "retriever of objects", "retriever after removals"),
)


def answers(thing: Any) -> Any:
    """Return what an object answers to a few rows, as JSON."""
    n_features = thing.n_features if isinstance(thing, ContextualMemoryTree) else thing.n_features_in_
    if n_features is None:
        return None
    rows = dense_rows(6, n_features, 8) if n_features == 5 else sparse_rows(6, n_features, 8)
    if isinstance(thing, ContextualMemoryTree):
        return thing.query(rows, 2).ids.tolist()
    found = thing.predict(rows)
    found = found.toarray() if scipy.sparse.issparse(found) else found
    return found.round(3).tolist() if found.dtype.kind == "f" else found.tolist()


def main() -> None:
    """Write the fixtures of the version in hand."""
    folder = FIXTURES / f"format_{FORMAT_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    things = {name: thing for name, thing in objects(30).items() if name in _NAMES}
    for name, thing in things.items():
        thing.save(folder / f"{name.replace(' ', '_')}.cmt")
    expected = {name.replace(" ", "_"): answers(thing) for name, thing in things.items()}
    (folder / "answers.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
