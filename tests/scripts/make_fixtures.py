"""Write files in the current versions of the formats, which later versions must load.

Run this once for each version of a format, before its first release. Files of earlier versions stay as they are.

    python tests/scripts/make_fixtures.py files
    python tests/scripts/make_fixtures.py journals
    python tests/scripts/make_fixtures.py policies
    python tests/scripts/make_fixtures.py folders
"""

import argparse
import copy
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree, MemoryStore
from cmt_numba.bandits import (
    UCB1,
    CMTBandit,
    EpsilonGreedy,
    HybridLinUCB,
    LinearThompson,
    LinUCB,
    Omniscient,
    Policy,
    Random,
    SquareCB,
    WarmUCB1,
)
from cmt_numba.bandits.evaluation import Log
from cmt_numba.journal import DurableTree
from cmt_numba.journal._database import VERSION as JOURNAL_VERSION
from cmt_numba.persistence import FORMAT_VERSION

TESTS = Path(__file__).parents[1]
FIXTURES = TESTS / "fixtures"

sys.path.append(str(TESTS / "helpers"))
from saved import dense_rows, objects, sparse_rows  # noqa: E402

_NAMES = (
    *("empty", "dense forest", "sparse", "bounded", "classifier", "sparse classifier", "pair classifier"),
    *("retriever by value", "retriever of objects", "retriever after removals"),
)
_JOURNALS: dict[str, tuple[Any, dict[str, Any]]] = {
    "empty": (None, {"n_trees": 3}),
    "dense": (dense_rows(30, 5), {"n_trees": 2, "leaf_multiplier": 1.0}),
    "sparse": (sparse_rows(30, 40), {}),
    "least recently returned": (dense_rows(30, 5), {"max_memories": 25}),
    "oldest": (sparse_rows(30, 40), {"max_memories": 25, "eviction": "oldest"}),
    "random": (dense_rows(30, 5), {"max_memories": 25, "eviction": "random"}),
}


def answers(thing: Any) -> Any:
    """Return the answers of an object to a few rows, as JSON."""
    n_features = thing.n_features if isinstance(thing, ContextualMemoryTree) else thing.n_features_in_
    if n_features is None:
        return None
    rows = dense_rows(6, n_features, 8) if n_features == 5 else sparse_rows(6, n_features, 8)
    if isinstance(thing, ContextualMemoryTree):
        return thing.query(rows, 2).ids.tolist()
    found = thing.predict(rows)
    found = found.toarray() if scipy.sparse.issparse(found) else found
    return found.round(3).tolist() if found.dtype.kind == "f" else found.tolist()


def held(tree: DurableTree) -> Any:
    """Return the memories and the answers of a tree in a folder, as JSON."""
    return {"sequence": tree.sequence, "ids": sorted(tree.ids.tolist()), "answers": answers(copy.deepcopy(tree))}


def _change(tree: DurableTree, rows: Any) -> None:
    """Make every kind of change."""
    tree.insert(rows[:20])
    tree.remove(np.sort(tree.ids)[::6])
    tree.insert(rows[20:25])
    tree.replace(np.sort(tree.ids)[:3], rows[25:28])
    tree.insert(rows[20:30])
    hits = tree.query(rows, 3, epsilon=0.5)
    tree.update(rows, hits, np.random.default_rng(4).random(hits.ids.shape))
    kept = np.sort(tree.ids)[:5]
    tree.teach(rows[:5], kept, n_passes=2)
    tree.teach(rows[:5], kept)
    tree.reroute(10)
    tree.replace(kept, rows[10:15])
    tree.compact()
    tree.insert(rows[3:9])


def _write_journal(folder: Path, rows: Any, options: dict[str, Any]) -> Any:
    """Write two folders, one of a killed process and one that was closed; return the contents of the tree."""
    closed = folder.with_name(f"{folder.name}_closed")
    with DurableTree(closed, random_state=2, n_threads=1, **options) as tree:
        if rows is not None:
            _change(tree, rows)
            tree.snapshot()
            _change(tree, rows)
        expected = held(tree)
        shutil.copytree(closed, folder)
    return expected


def write_files() -> None:
    """Write trees and estimators in the current version."""
    folder = FIXTURES / f"format_{FORMAT_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    things = {name: thing for name, thing in objects(30).items() if name in _NAMES}
    for name, thing in things.items():
        thing.save(folder / f"{name.replace(' ', '_')}.cmt")
    expected = {name.replace(" ", "_"): answers(thing) for name, thing in things.items()}
    (folder / "answers.json").write_text(json.dumps(expected, indent=1) + "\n")


def write_journals() -> None:
    """Write folders of durable trees in the current version."""
    folder = FIXTURES / f"journal_{JOURNAL_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, (rows, options) in _JOURNALS.items():
        path = folder / name.replace(" ", "_")
        expected[path.name] = expected[f"{path.name}_closed"] = _write_journal(path, rows, options)
    (folder / "answers.json").write_text(json.dumps(expected, indent=1) + "\n")


def policies() -> dict[str, Policy]:
    """Return policies that have learned, with decisions that wait for a reward."""
    X, rewards = dense_rows(40, 3), (np.arange(40) % 3 == 0).astype(float)
    actions, features = np.arange(40) % 5, dense_rows(5, 2, 1)
    made: dict[str, Policy] = {
        kind.__name__: kind(5, random_state=0)
        for kind in (EpsilonGreedy, LinUCB, LinearThompson, Omniscient, Random, SquareCB, UCB1)
    }
    made["HybridLinUCB"] = HybridLinUCB(action_features=features, random_state=0)
    made["WarmUCB1"] = WarmUCB1(random_state=0).warm_up(Log(actions, rewards, X), features)
    for policy in made.values():
        policy.learn(X, actions, rewards)
    for name, keys in (("CMTBandit", dense_rows(40, 6)), ("CMTBandit_sparse", sparse_rows(40, 30))):
        bandit = CMTBandit(n_candidates=6, n_tried=2, n_bits=5, n_trees=2, epsilon=0.1, random_state=0)
        bandit.add_actions(np.arange(20), keys[:20])
        bandit.reward(bandit.act(keys).ids[::2], rewards[::2])
        made[name] = bandit
    return made


def probabilities_of(policy: Policy) -> Any:
    """Return the action probabilities of a policy in a few contexts, as JSON."""
    width = policy.n_features or 3
    contexts = sparse_rows(3, width, 8) if width == 30 else dense_rows(3, width, 8)
    return policy.probabilities(contexts).round(9).tolist()


def write_policies() -> None:
    """Write policies in the current version."""
    folder = FIXTURES / f"policies_{FORMAT_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    made = policies()
    for name, policy in made.items():
        policy.save(folder / f"{name}.cmt")
    found = {name: probabilities_of(policy) for name, policy in made.items()}
    (folder / "answers.json").write_text(json.dumps(found, indent=None) + "\n")


def open_folder(name: str, path: Path) -> Any:
    """Open the folder of an estimator or a store, or create it if it does not exist."""
    if name.startswith("store"):
        options = {"random_state": 0, "metric": name.removeprefix("store_")} if not path.exists() else {}
        return MemoryStore(path, n_threads=1, **options)
    kind = {"classifier": CMTClassifier, "multilabel": CMTMultilabelClassifier, "retriever": CMTRetriever}[name]
    return kind.open(path, **({} if path.exists() else {"n_trees": 2, "random_state": 0}))


def change_folder(thing: Any) -> None:
    """Make changes of every kind."""
    X, y = np.eye(6, 5) + 0.1 * dense_rows(6, 5), list("abcdef")
    if isinstance(thing, MemoryStore):
        thing.add(y, X, [{"n": i} for i in range(6)])
        thing.upsert(["a", "g"], X[1:3], [{"n": 9}, None])
        thing.delete(["b"])
        thing.feedback(X, thing.query(X, 2).keys, np.linspace(0.0, 1.0, 12).reshape(6, 2))
    elif isinstance(thing, CMTClassifier):
        thing.fit(X, y).partial_fit(X[[5, 0]], ["g", "a"], sample_weight=[1.0, 0.5])
        thing.remove_classes(["b"]).remove([3]).calibrate(X[:1], y[:1])
    elif isinstance(thing, CMTMultilabelClassifier):
        thing.fit(X, [[a, b] for a, b in zip(y, y[1:] + y[:1], strict=True)]).partial_fit(X[5:], [["new"]])
    else:
        thing.fit(X, y).partial_fit(X[[5, 5]], ["g", "h"]).feedback(X[:2], [0, 1], [1.0, 0.2])
        thing.remove([3]).replace([4], -X[5:]).set_values([5], ["k"])
        thing.query(X, 2, epsilon=0.5)


def held_in_folder(thing: Any) -> Any:
    """Return the contents of an object in a folder, as JSON."""
    if isinstance(thing, MemoryStore):
        keys = sorted(thing)
        items = thing.get(keys)
        return {"keys": keys, "payloads": items.payloads, "vectors": np.round(items.vectors, 4).tolist()}
    found = thing.predict(np.eye(5)[[0, 2]])
    return found.toarray().tolist() if scipy.sparse.issparse(found) else [*map(_as_json, found)]


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value)


def write_folders() -> None:
    """Write folders of estimators and stores in the current version, in the state that a killed process leaves."""
    folder = FIXTURES / f"folders_{JOURNAL_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name in ("classifier", "multilabel", "retriever"):
        with tempfile.TemporaryDirectory() as room:
            thing = open_folder(name, Path(room) / "folder")
            change_folder(thing)
            shutil.copytree(Path(room) / "folder", folder / name)
            expected[name] = held_in_folder(thing)
            thing.close()
    (folder / "answers.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write files that later versions must load.")
    parser.add_argument("what", choices=["files", "journals", "policies", "folders"])
    writers = {"files": write_files, "journals": write_journals, "policies": write_policies, "folders": write_folders}
    writers[parser.parse_args().what]()
