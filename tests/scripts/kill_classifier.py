"""Kill processes while they change a classifier in a folder, as many times as wanted, and see what is there afterwards.

Each process opens the folder, learns examples, removes examples and classes, and asks for probabilities. After each
change it tells how many were acknowledged, until it is killed (SIGKILL) at a random moment. The folder must then open
with exactly the classifier that the same changes give elsewhere, and nothing acknowledged may be missing. POSIX only.

    python tests/scripts/kill_classifier.py 500 --sparse --max-examples 60
"""

import argparse
import struct
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from killed import told_until_killed

from cmt_numba import CMTClassifier
from cmt_numba.estimators._durable import folder_of

_LONGEST_LIFE = 1.0  # seconds
_FEATURES = 6
_TOLD = struct.Struct("<q")
_OPTIONS: dict[str, Any] = {"n_trees": 2, "n_head_passes": 2, "n_router_passes": 1, "random_state": 7}


class Killed(NamedTuple):
    """An estimator whose processes are killed."""

    new: partial[Any]  # the class, with its options
    change: Callable[[Any, int], None]  # makes the change of a number
    assert_equal: Callable[[Any, Any], None]

    def opened(self, path: Path) -> Any:
        """Return the estimator in a folder, with as many snapshots as it will take."""
        return self.new.func.open(path, snapshot_bytes=0, snapshot_seconds=0.0, **self.new.keywords)


def killed_classifier(*, sparse: bool, **options: Any) -> Killed:
    """Return a classifier of dense or sparse rows."""
    new = partial(CMTClassifier, **_OPTIONS, **options)
    return Killed(new, partial(change, sparse=sparse), partial(assert_equal, sparse=sparse))


def rows(n: int, seed: int, *, sparse: bool) -> tuple[Any, np.ndarray]:
    """Return rows of up to twelve classes, and the classes."""
    rng = np.random.default_rng([seed, 5])
    y = rng.integers(12, size=n)
    X = (np.random.default_rng(0).normal(size=(12, _FEATURES))[y] + 0.4 * rng.normal(size=(n, _FEATURES))).round(3)
    return (scipy.sparse.csr_array(X) if sparse else X), np.char.add("class ", y.astype(str))


def change(classifier: CMTClassifier, number: int, *, sparse: bool) -> None:
    """Make the change of this number. Which one it is depends on the number and on the classifier alone."""
    rng = np.random.default_rng([number, 3])
    draw = rng.random()
    if number < 3 or draw < 0.5 or classifier.classes_.size < 5:
        X, y = rows(int(rng.integers(1, 12)), number, sparse=sparse)
        weights = rng.integers(1, 3, size=y.size) if draw < 0.1 else None
        if draw > 0.2 and number > 2:
            classifier.predict_proba(X[:1])  # may learn how sure it is
        classifier.partial_fit(X, y, sample_weight=weights)
    elif draw < 0.75:
        assert classifier.examples_ is not None
        ids = classifier.examples_.keys.ids[: classifier._model.index.n_of_label.sum()]
        classifier.remove(rng.choice(ids, min(3, ids.size - 1), replace=False))
    elif draw < 0.85:
        classifier.remove_classes(classifier.classes_[:1])
    elif draw < 0.95:
        classifier.set_params(aggressiveness=float(rng.choice([0.5, 1.0, 2.0])))
        classifier.partial_fit(*rows(2, number, sparse=sparse))
    else:
        classifier.fit(*rows(30, number, sparse=sparse))


def assert_equal(one: CMTClassifier, other: CMTClassifier, *, sparse: bool) -> None:
    """Fail unless two classifiers are the same, bit for bit."""
    if not hasattr(other, "forest_"):
        assert not hasattr(one, "forest_")
        return
    X, _ = rows(40, 0, sparse=sparse)
    one.check_invariants()
    assert one._contents().fields["attributes"] == other._contents().fields["attributes"]
    np.testing.assert_array_equal(one.classes_, other.classes_)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    np.testing.assert_array_equal(one.kneighbors(X, 3, return_distance=False), other.kneighbors(X, 3, False))


def kill_while_changing(path: Path, number: int, seconds: float, kind: Killed) -> int:
    """Have a process make changes from a number on, and kill it; return how many it has acknowledged."""

    def work(tell: Callable[..., None]) -> None:
        with kind.opened(path) as estimator:
            for following in count(number):
                kind.change(estimator, following)
                tell(following + 1)

    told = told_until_killed(work, _TOLD, seconds)
    return told[0] if told else number


def n_entries(estimator: Any) -> int:
    """Return how many changes the folder of an estimator has seen, but for what is noted between them."""
    folder = folder_of(estimator)
    assert folder is not None
    return folder.journal.sequence


def kill_changes(n: int, seed: int, *, sparse: bool = False, **options: Any) -> int:
    """Kill ``n`` processes and check the classifier after each; return how many changes there were."""
    return kill_changes_of(n, seed, killed_classifier(sparse=sparse, **options))


def kill_changes_of(n: int, seed: int, kind: Killed) -> int:
    """Kill ``n`` processes and check the estimator after each; return how many changes there were."""
    random = np.random.default_rng(seed)
    compiling = kind.new()
    for number in range(12):
        kind.change(compiling, number)
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "estimator"
        reference = kind.opened(Path(folder) / "reference")
        for _ in range(n):
            acknowledged = kill_while_changing(path, number, random.random() * _LONGEST_LIFE, kind)
            with kind.opened(path) as estimator:
                while n_entries(reference) < n_entries(estimator):
                    kind.change(reference, number)
                    number += 1
                assert number >= acknowledged, f"{acknowledged} changes were acknowledged, but {number} are there"
                kind.assert_equal(estimator, reference)
        reference.close()
    return number


def main() -> int:
    """Run the command line; an assertion fails if anything was lost."""
    parser = argparse.ArgumentParser(description="Kill processes while they change a classifier in a folder.")
    parser.add_argument("number", type=int, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--max-examples", type=int)
    given = parser.parse_args()
    n = kill_changes(given.number, given.seed, sparse=given.sparse, max_examples=given.max_examples)
    print(f"{given.number} killed, {n} changes; nothing lost, and the classifier is the same bit for bit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
