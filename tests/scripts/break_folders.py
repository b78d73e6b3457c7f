"""Break durable objects with random faults, and compare them with twins in memory that never fail.

Each durable class makes random changes in a folder: rows of all magnitudes, weights from 0 to 1e30, other parameters.
Faults strike during a change or while the folder is opened or closed. Afterwards the folder must open, in the state
after the last acknowledged change or after the change under way. The twin must refuse the same changes, and a refused
change must leave everything as it was. POSIX only.

    python tests/scripts/break_folders.py 3000 --seed 1
    python tests/scripts/break_folders.py 500 --seed 2 --only tree store
    python tests/scripts/break_folders.py 100 --only shards  # needs the extra ray; takes much longer
"""

import argparse
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from faults import Countdown, fail_to_write, full_disk, interrupt, kill
from sklearn.base import BaseEstimator

from cmt_numba import (
    CMTClassifier,
    CMTMultilabelClassifier,
    CMTRetriever,
    ContextualMemoryTree,
    DurableTree,
    MemoryStore,
)
from cmt_numba.bandits import CMTBandit, LinUCB
from cmt_numba.journal import JournalError
from cmt_numba.text import TextClassifier

WIDTH = 4
PROBES = np.random.default_rng(11).normal(size=(12, WIDTH)).astype(np.float32)
WEIGHTS = (0.0, 1e-30, 1e-22, 1e-5, 1.0, 1.0, 1e5, 1e22, 1e30)
MAGNITUDES = (1e-30, 1e-18, 1e-6, 1.0, 1.0, 1.0, 1e6, 1e18, 1e30)
REFUSED = (ValueError, TypeError, KeyError, IndexError, OverflowError)
FAILURES = (JournalError, OSError, sqlite3.Error, KeyboardInterrupt)


class Random(np.random.Generator):
    """Random numbers, and random rows in dense or sparse form."""

    def __init__(self, *seed: int, sparse: bool = False) -> None:
        super().__init__(np.random.PCG64(seed))
        self._sparse = sparse

    def form(self, X: np.ndarray) -> Any:
        """Return rows in dense or sparse form."""
        return scipy.sparse.csr_array(X) if self._sparse else X

    def few_rows(self) -> Any:
        """Return a few rows of one magnitude, some of them equal."""
        X = self.normal(size=(int(self.integers(1, 12)), WIDTH)).round(2) * self.choice(MAGNITUDES)
        return self.form(X.astype(np.float32))

    def rows(self, n: int) -> Any:
        """Return rows distributed like the probes."""
        return self.form(self.normal(size=(n, WIDTH)).astype(np.float32))


Change = Callable[[Any, Random], Any]
Labels = Callable[[int, Random], Any]
State = dict[str, Any]


def weights(n: int, random: Random) -> np.ndarray | None:
    """Return weights of all magnitudes, or none."""
    return random.choice(WEIGHTS, n) if random.random() < 0.5 else None


def saved(thing: Any) -> bytes:
    """Return the saved file of an object, which also shows what it has learned."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved"
        thing.save(path)
        return path.read_bytes()


# Changes of trees


def some_ids(tree: Any, random: Random, n: int = 4) -> np.ndarray:
    ids = np.sort(tree.ids)
    return random.choice(ids, min(n, ids.size), replace=False)


def insert_first(tree: Any, random: Random) -> None:
    tree.insert(random.form(PROBES))


def insert(tree: Any, random: Random) -> None:
    tree.insert(random.few_rows())


def remove(tree: Any, random: Random) -> None:
    tree.remove(some_ids(tree, random))


def replace(tree: Any, random: Random) -> None:
    ids = some_ids(tree, random)
    tree.replace(ids, random.rows(ids.size))


def learn(tree: Any, random: Random) -> None:
    X = random.few_rows()
    hits = deepcopy(tree).query(X, 3)  # on a copy, since a query of a tree that evicts by queries is itself a change
    tree.update(X, hits, random.random(hits.ids.shape))


def teach(tree: Any, random: Random) -> None:
    ids = some_ids(tree, random)
    tree.teach(random.rows(ids.size), ids)


def note(tree: Any, random: Random) -> None:
    """Make a query and write it to disk, since a tree that evicts by queries records them."""
    tree.query(random.rows(3), 2)
    if isinstance(tree, DurableTree):
        tree.sync()


def state_of_tree(tree: Any) -> State:
    tree.check_invariants()
    return {"ids": np.sort(tree.ids), "file": saved(tree)}


# Changes of estimators


def begin(labels: Labels) -> Change:
    """Return the change that learns the first rows."""
    return lambda estimator, random: estimator.partial_fit(random.form(PROBES), labels(len(PROBES), random))


def partial_fit(labels: Labels) -> Change:
    """Return the change that learns a few rows."""

    def change(estimator: Any, random: Random) -> None:
        X = random.few_rows()
        estimator.partial_fit(X, labels(X.shape[0], random), sample_weight=weights(X.shape[0], random))

    return change


def fit(labels: Labels) -> Change:
    """Return the change that fits again."""

    def change(estimator: Any, random: Random) -> None:
        X = random.form(np.vstack([PROBES, PROBES[:8] + 1]))
        estimator.fit(X, labels(20, random), sample_weight=weights(20, random))

    return change


def set_params_and_learn(labels: Labels) -> Change:
    """Return the change that learns with another parameter value, which may be invalid."""

    def change(estimator: Any, random: Random) -> None:
        before = estimator.get_params()
        name = random.choice([name for name in sorted(before) if name not in ("n_jobs", "random_state", "verbose")])
        value: Any = (0, -1, "nonsense", 1.5, float("nan"), 2**40, None, 3, before[name])[int(random.integers(9))]
        try:
            estimator.set_params(**{name: value})
            estimator.partial_fit(random.rows(3), labels(3, random))
        except REFUSED:
            estimator.set_params(**before)
            raise

    return change


def remove_examples(estimator: Any, random: Random) -> None:
    found = deepcopy(estimator).kneighbors(random.rows(2), 2, return_distance=False)
    estimator.remove(np.unique(found[found >= 0])[:3])


def remove_a_class(classifier: Any, random: Random) -> None:
    classes = getattr(classifier, "classes_", np.array(["none"]))
    classifier.remove_classes([random.choice(classes)])


def calibrate(classifier: Any, random: Random) -> None:
    classes = getattr(classifier, "classes_", np.array(["none"]))
    classifier.calibrate(random.form(PROBES), random.choice(classes, len(PROBES)))


def give_feedback(retriever: Any, random: Random) -> None:
    X = random.rows(5)
    found = retriever.kneighbors(X, 3, return_distance=False)
    retriever.feedback(X, found, random.random(found.shape))


def one_class(n: int, random: Random) -> np.ndarray:
    return random.choice(["a", "b", "c", "d", "e"], n)


def several_labels(n: int, random: Random) -> list[list[str]]:
    return [[str(label) for label in random.choice(["a", "b", "c", "d"], 2, replace=False)] for _ in range(n)]


def values(n: int, random: Random) -> np.ndarray:
    return random.normal(size=(n, 2)).round(2)


def state_of_estimator(estimator: Any) -> State:
    state: State = {"params": repr(sorted(estimator.get_params().items()))}
    if hasattr(estimator, "n_features_in_"):
        estimator.check_invariants()
        name = "decision_function" if hasattr(estimator, "classes_") else "predict"
        state |= {"answers": getattr(estimator, name)(PROBES), "file": saved(estimator)}
    return state


# Changes of stores


def some_keys(store: Any, random: Random, n: int = 4) -> list[Any]:
    keys = sorted(store, key=str)
    return [keys[i] for i in random.choice(len(keys), min(n, len(keys)), replace=False)]


def add_first(store: Any, random: Random) -> None:
    store.add([f"first {i}" for i in range(len(PROBES))], random.form(PROBES))


def add(store: Any, random: Random) -> None:
    X, first = random.few_rows(), int(random.integers(10**9))
    names = [f"{first}.{i}" if i % 2 else f"{first}.{i}\0" for i in range(X.shape[0])]
    store.add(names, X, [{"n": first % 5, "i": i} for i in range(X.shape[0])])


def upsert(store: Any, random: Random) -> None:
    keys = [*some_keys(store, random), f"new {random.integers(10**9)}"]
    store.upsert(keys, random.rows(len(keys)), [{"n": 1}] * len(keys))


def delete(store: Any, random: Random) -> None:
    store.delete(some_keys(store, random))


def reward(store: Any, random: Random) -> None:
    keys = some_keys(store, random)
    store.feedback(random.rows(len(keys)), keys, random.random(len(keys)))


def create_index(store: Any, random: Random) -> None:
    store.create_index("n")


def compact(thing: Any, random: Random) -> None:
    thing.compact()


def query(store: Any, random: Random) -> None:
    """Query with a filter, which may be cached for the next query."""
    store.query(random.rows(3), 3, where={"n": 1})


def state_of_store(store: Any) -> State:
    store.check_invariants()
    keys = sorted(store, key=str)
    if not keys:
        return {"keys": keys}
    items = store.get(keys)
    vectors = items.vectors.toarray() if scipy.sparse.issparse(items.vectors) else items.vectors
    return {"keys": keys, "vectors": vectors, "payloads": items.payloads, "file": saved(store)}


# Changes of policies


def learn_first(policy: Any, random: Random) -> None:
    policy.learn(random.form(PROBES), np.arange(12), random.random(12))


def act(policy: Any, random: Random) -> None:
    policy.act(random.rows(3), random.choice(policy.actions, 2, replace=False))


def learn_rewards(policy: Any, random: Random) -> None:
    policy.learn(random.rows(5), random.integers(0, 15, 5), random.random(5))


def reward_decisions(policy: Any, random: Random) -> None:
    """Reward some decisions, or decide and learn."""
    if isinstance(policy, CMTBandit):
        ids = sorted(policy._pending._decisions)[:3]
        policy.reward(ids, random.random(len(ids)))
    else:
        learn_rewards(policy, random)


def add_actions(policy: Any, random: Random) -> None:
    first = int(random.integers(20, 10**6))
    policy.add_actions([first, first + 1], *([random.rows(2)] if isinstance(policy, CMTBandit) else []))


def remove_actions(policy: Any, random: Random) -> None:
    if policy.actions.size > 6:
        policy.remove_actions(random.choice(policy.actions, 2, replace=False))


def state_of_policy(policy: Any) -> State:
    if not policy.actions.size:
        return {"actions": policy.actions}
    return {"actions": policy.actions, "file": saved(policy), "answers": policy.probabilities(PROBES)}


# Changes of text classifiers

WORDS = ["rain", "wind", "snow", "song", "drum", "flute", "bread", "soup", "plum", "goal", "ball", "net"]
QUESTIONS = ["rain and wind", "a song on a flute", "bread", "a goal"]


def some_texts(n: int, random: Random) -> list[str]:
    return [" ".join(random.choice(WORDS, int(random.integers(1, 6)))) for _ in range(n)]


def learn_texts(name: str, n: int) -> Change:
    """Return the change that learns ``n`` texts by a method."""

    def change(classifier: Any, random: Random) -> None:
        ids = [f"{random.integers(10**9)}.{i}" for i in range(n)]
        given = np.abs(random.normal(size=n)) if random.random() < 0.5 else None
        getattr(classifier, name)(some_texts(n, random), one_class(n, random), ids, sample_weight=given)

    return change


def ids_of_texts(classifier: Any, random: Random) -> list[Any]:
    ids = classifier.ids_ if hasattr(classifier, "classes_") else ["nowhere"]
    return [ids[i] for i in random.choice(len(ids), min(3, len(ids)), replace=False)]


def relabel(classifier: Any, random: Random) -> None:
    ids = ids_of_texts(classifier, random)
    classifier.relabel(ids, one_class(len(ids), random))


def remove_texts(classifier: Any, random: Random) -> None:
    classifier.remove(ids_of_texts(classifier, random))


def calibrate_texts(classifier: Any, random: Random) -> None:
    classifier.calibrate(some_texts(30, random), one_class(30, random))


def state_of_texts(classifier: Any) -> State:
    if not hasattr(classifier, "classes_"):
        return {"ids": []}
    return {"ids": classifier.ids_, "answers": classifier.predict_proba(QUESTIONS), "file": saved(classifier)}


# Durable classes


@dataclass(frozen=True)
class Kind:
    """A durable class: how to open it, its changes, invalid arguments, and the state to compare."""

    new_twin: Callable[..., Any]
    opened: Callable[..., Any]
    changes: dict[str, Change]  # the first one is made first
    upkeep: dict[str, Callable[[Any], Any]]
    invalid: dict[str, Callable[[Any], Any]]
    ask: Callable[[Any], Any]
    state: Callable[[Any], State]
    variants: tuple[dict[str, Any], ...]


def kind_of_estimator(cls: Any, labels: Labels, changes: dict[str, Change], *variants: dict[str, Any]) -> Kind:
    """Return an estimator with the changes that all estimators share, and some of its own."""
    y = labels(3, Random(0))
    return Kind(
        new_twin=cls,
        opened=cls.open,
        changes={
            "first partial_fit": begin(labels),
            "partial_fit": partial_fit(labels),
            "another partial_fit": partial_fit(labels),
            "fit": fit(labels),
            "set_params": set_params_and_learn(labels),
            **changes,
        },
        upkeep={"checkpoint": lambda estimator: estimator.checkpoint()},
        invalid={
            "width": lambda estimator: estimator.partial_fit(np.ones((3, WIDTH + 1)), y),
            "NaN": lambda estimator: estimator.partial_fit(np.full((3, WIDTH), np.nan), y),
            "weights": lambda estimator: estimator.partial_fit(PROBES[:3], y, sample_weight=[-1.0, np.inf, 1.0]),
            "lengths": lambda estimator: estimator.partial_fit(PROBES[:2], y),
        },
        ask=lambda estimator: getattr(estimator, "predict_proba", estimator.kneighbors)(PROBES),
        state=state_of_estimator,
        variants=tuple({"n_trees": 2, "random_state": 7, **variant} for variant in variants),
    )


def kind_of_policy(cls: Any, *variants: dict[str, Any]) -> Kind:
    """Return a policy."""
    return Kind(
        new_twin=cls,
        opened=cls.open,
        changes={
            "first learn": learn_first,
            "act": act,
            "another act": act,
            "reward": reward_decisions,
            "another reward": reward_decisions,
            "learn": learn_rewards,
            "add actions": add_actions,
            "remove actions": remove_actions,
        },
        upkeep={"checkpoint": lambda policy: policy.checkpoint()},
        invalid={
            "width": lambda policy: policy.act(np.ones((2, WIDTH + 1))),
            "NaN": lambda policy: policy.act(np.full((2, WIDTH), np.nan)),
            "rewards": lambda policy: policy.learn(PROBES[:2], [0, 1], [np.nan, 0.0]),
            "actions": lambda policy: policy.remove_actions([10**8]),
        },
        ask=lambda policy: policy.probabilities(PROBES),
        state=state_of_policy,
        variants=tuple({"random_state": 7, **variant} for variant in variants),
    )


KINDS = {
    "tree": Kind(
        new_twin=ContextualMemoryTree,
        opened=DurableTree,
        changes={
            "first insert": insert_first,
            "insert": insert,
            "another insert": insert,
            "remove": remove,
            "replace": replace,
            "learn": learn,
            "teach": teach,
            "reroute": lambda tree, random: tree.reroute(10),
            "compact": compact,
            "note": note,
        },
        upkeep={"snapshot": lambda tree: tree.snapshot(), "sync": lambda tree: tree.sync()},
        invalid={
            "width": lambda tree: tree.insert(np.ones((2, WIDTH + 1))),
            "NaN": lambda tree: tree.insert(np.full((2, WIDTH), np.nan)),
            "ids": lambda tree: tree.remove([10**9]),
            "rewards": lambda tree: tree.update(PROBES, deepcopy(tree).query(PROBES, 1), np.full(12, 2.0)),
        },
        ask=lambda tree: tree.query(PROBES, 2),
        state=state_of_tree,
        variants=tuple(
            {"n_trees": 2, "leaf_multiplier": 1.0, "random_state": 7, "n_threads": 1, **variant}
            for variant in (
                {},
                {"max_memories": 30, "eviction": "oldest"},
                {"max_memories": 30, "eviction": "random"},
                {"max_memories": 30, "eviction": "least_recently_returned"},
            )
        ),
    ),
    "classifier": kind_of_estimator(
        CMTClassifier,
        one_class,
        {
            "remove": remove_examples,
            "remove_classes": remove_a_class,
            "calibrate": calibrate,
        },
        {},
        {"max_examples": 30},
        {"method": "neighbors"},
    ),
    "multilabel": kind_of_estimator(CMTMultilabelClassifier, several_labels, {}, {}, {"threshold": "f1"}),
    "retriever": kind_of_estimator(
        CMTRetriever,
        values,
        {"remove": remove_examples, "feedback": give_feedback},
        {"search": "key"},
        {"search": "value"},
    ),
    "bandit": kind_of_policy(CMTBandit, {"n_bits": 8}, {"n_bits": 8, "n_candidates": 2, "epsilon": 0.2}),
    "policy": kind_of_policy(LinUCB, {}, {"alpha": 0.1}),
    "texts": Kind(
        new_twin=TextClassifier,
        opened=TextClassifier.open,
        changes={
            "first partial_fit": learn_texts("partial_fit", 20),
            "partial_fit": learn_texts("partial_fit", 3),
            "another partial_fit": learn_texts("partial_fit", 1),
            "fit": learn_texts("fit", 20),
            "relabel": relabel,
            "remove": remove_texts,
            "remove_classes": remove_a_class,
            "calibrate": calibrate_texts,
        },
        upkeep={"checkpoint": lambda classifier: classifier.checkpoint()},
        invalid={
            "lengths": lambda classifier: classifier.partial_fit(["rain"], ["a", "b"]),
            "texts": lambda classifier: classifier.partial_fit([3], ["a"]),
            "weights": lambda classifier: classifier.partial_fit(["rain"], ["a"], sample_weight=[-1.0]),
            "ids": lambda classifier: classifier.remove(["nowhere"]),
        },
        ask=lambda classifier: classifier.predict(QUESTIONS),
        state=state_of_texts,
        variants=({"random_state": 7},),
    ),
    "store": Kind(
        new_twin=MemoryStore,
        opened=MemoryStore,
        changes={
            "first add": add_first,
            "add": add,
            "another add": add,
            "upsert": upsert,
            "delete": delete,
            "feedback": reward,
            "create_index": create_index,
            "query": query,
        },
        upkeep={"sync": lambda store: store.sync()},
        invalid={
            "width": lambda store: store.add(["x", "y"], np.ones((2, WIDTH + 1))),
            "NaN": lambda store: store.add(["x", "y"], np.full((2, WIDTH), np.nan)),
            "twice": lambda store: store.add(["x", "x"], PROBES[:2]),
            "keys": lambda store: store.delete(["nowhere"]),
        },
        ask=lambda store: store.query(PROBES, 2),
        state=state_of_store,
        variants=tuple(
            {"random_state": 7, "n_threads": 1, **variant}
            for variant in (
                {"metric": "cosine"},
                {"metric": "inner_product"},
                {"metric": "euclidean"},
                {"metric": "euclidean", "max_items": 30, "eviction": "oldest"},
                {"metric": "inner_product", "max_items": 30},
            )
        ),
    ),
}


# Trials


def difference(one: State, other: State) -> str:
    """Return the names of the parts in which two states differ, or an empty string."""
    if one.keys() != other.keys():
        return f"{sorted(one)} against {sorted(other)}"
    return ", ".join(name for name in one if not is_same(one[name], other[name]))


def is_same(one: Any, other: Any) -> bool:
    """Return whether two parts of states are equal, bit for bit."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return type(one) is type(other) and bool(one == other)


class WrongError(Exception):
    """A folder does not open, or has the wrong contents."""


@dataclass
class Trial:
    """A folder with an object in it, and two twins in memory: one before the last change, and one after it.

    A change draws its arguments from its number and the changed object, so it is the same for all three.
    """

    kind: Kind
    options: dict[str, Any]
    path: Path
    seed: int
    n_faults: Counter[str]
    number: int = 0  # of changes that the later twin has made
    history: list[str] = field(default_factory=list)
    has_been_asked: bool = False  # after a failure: the folder may also hold what was learned for the answer

    def __post_init__(self) -> None:
        self.random = Random(self.seed, 1)
        self.sparse = self.random.random() < 0.4
        self.before, self.after = self.kind.new_twin(**self.options), self.kind.new_twin(**self.options)
        self.n_seen = {True: 30, False: 3000}  # writes and calls in a change
        self.thing: Any = None
        self.open()

    def open(self, n_changes: int = 0) -> None:
        """Open the folder, with random frequencies of snapshots and of waits for the disk.

        Pass the options until the first change, by a process (``n_changes`` > 0) or by the twin, has stored them.
        """
        self.how: dict[str, Any] = {
            "snapshot_bytes": int(self.random.choice([0, 5000, 1 << 26])),
            "snapshot_seconds": float(self.random.choice([0.0, 10.0])),
            "sync_every": int(self.random.choice([1, 3, 100])),
        }
        if not self.number and not n_changes:
            self.how |= self.options
        try:
            self.thing = self.kind.opened(self.path, **self.how)
        except Exception as error:
            raise WrongError("the folder does not open") from error

    def close(self) -> None:
        """Close the folder, which may fail."""
        with suppress(*FAILURES):
            if self.thing is not None:
                self.thing.close()

    def ask(self) -> None:
        """Query the object, which may record the query."""
        self.has_been_asked = True
        with suppress(*FAILURES, *REFUSED):
            self.kind.ask(self.thing)

    def name_of(self, number: int) -> str:
        """Return the name of the change with a number."""
        names = list(self.kind.changes)
        return names[int(Random(self.seed, number).integers(1, len(names))) if number else 0]

    def change(self, thing: Any, number: int) -> str:
        """Make the change with a number; return the error if it was refused, or an empty string."""
        try:
            self.kind.changes[self.name_of(number)](thing, Random(self.seed, number, 2, sparse=self.sparse))
        except JournalError:
            raise
        except REFUSED as error:
            return type(error).__name__
        return ""

    def advance(self) -> str:
        """Advance both twins by one change; return the error if it was refused."""
        if self.number:
            self.change(self.before, self.number - 1)
        self.number += 1
        return self.change(self.after, self.number - 1)

    def differs(self, twin: Any) -> str:
        """Return how the object in the folder differs from a twin."""
        one, other = self.kind.state(self.thing), self.kind.state(twin)
        if self.has_been_asked:
            one.pop("file", None)
            other.pop("file", None)
        return difference(one, other)

    def differs_from(self, twin: Any) -> str:
        """Return how the object differs from a twin, with the parameters of the twin.

        A failed change may leave either parameters: ``set_params`` itself is no change of a folder.
        """
        if isinstance(twin, BaseEstimator):
            self.thing.set_params(**twin.get_params())
        return self.differs(twin)

    def step(self) -> None:
        """Inject a fault, with or without a change. Afterwards the object equals its later twin."""
        fault = FAULT_NAMES[int(self.random.integers(len(FAULT_NAMES)))]
        self.history.append(f"{self.name_of(self.number)} with {fault}")
        FAULTS[fault](self)
        if different := self.differs(self.after):
            raise WrongError(f"other {different}")

    def make(self) -> None:
        """Make the last change of the twins, without a fault."""
        refused = self.advance()
        self.require_answer(self.change(self.thing, self.number - 1), refused)

    def require_answer(self, answer: str, twins: str) -> None:
        """Fail unless the twin accepted the change too, or refused it with the same error."""
        if answer != twins:
            raise WrongError(f"refused with {answer or 'nothing'}, and by the twin with {twins or 'nothing'}")

    def make_during(self, name: str, condition: Any, happened: Callable[[], bool]) -> None:
        """Make a change during a fault; if the change fails, continue in a random way."""
        refused, answer = self.advance(), None
        try:
            with condition:
                try:
                    answer = self.change(self.thing, self.number - 1)
                except FAILURES:
                    if self.random.random() < 0.2:
                        self.ask()
                    if self.random.random() < 0.3:
                        self.close()
                    raise
        except FAILURES as error:
            if not happened():
                raise WrongError("a change fails without a fault") from error
        self.n_faults[name] += happened()
        if answer is not None:
            self.require_answer(answer, refused)
        elif self.random.random() < 0.5 or not self.goes_on():
            self.close()
            self.open()
            self.catch_up()

    def goes_on(self) -> bool:
        """Repeat the change without opening the folder again, unless the object requires that."""
        try:
            if not self.differs_from(self.after):
                return False
            if self.differs_from(self.before):
                return False  # the next query or change restores it
            self.change(self.thing, self.number - 1)
        except (*FAILURES, *REFUSED):
            return False
        return True

    def catch_up(self) -> None:
        """Make the last change if it is missing. Fail if the folder has neither the state before it nor after it."""
        if different := self.differs_from(self.after):
            if other := self.differs_from(self.before):
                raise WrongError(f"neither what was before the change ({other}) nor what is after it ({different})")
            self.change(self.thing, self.number - 1)

    def strike(self, name: str, strike: Callable[[], None], *, writes: bool) -> None:
        """Make a change, and inject a fault during it."""
        countdown = Countdown(int(self.random.random() * 1.1 * self.n_seen[writes]), strike, writes=writes)
        self.make_during(name, countdown, lambda: countdown.struck)
        self.n_seen[writes] = max(3, countdown.seen)


def upkeep(trial: Trial) -> None:
    """Do the upkeep of the folder, such as a snapshot, and make a write fail."""
    names = sorted(trial.kind.upkeep)
    countdown = Countdown(int(trial.random.integers(20)), fail_to_write, writes=True)
    try:
        with countdown:
            trial.kind.upkeep[names[int(trial.random.integers(len(names)))]](trial.thing)
    except FAILURES:
        trial.close()
        trial.open()
    trial.n_faults["failing upkeep"] += countdown.struck


def reopen(trial: Trial) -> None:
    """Make a write fail while the folder is closed, and another one while it is opened."""
    closing = Countdown(int(trial.random.integers(20)), fail_to_write, writes=True)
    with suppress(*FAILURES), closing:
        trial.thing.close()
    trial.close()
    opening = Countdown(int(trial.random.integers(40)), interrupt, writes=True)
    with suppress(*FAILURES), opening:
        trial.thing = trial.kind.opened(trial.path, **trial.how)
    trial.close()
    trial.n_faults["failing close"] += closing.struck
    trial.n_faults["failing open"] += opening.struck
    trial.open()


def give_invalid(trial: Trial) -> None:
    """Give an invalid argument, now that the number of features is fixed."""
    if not trial.number:
        trial.make()
    names = sorted(trial.kind.invalid)
    name = names[int(trial.random.integers(len(names)))]
    try:
        trial.kind.invalid[name](trial.thing)
    except REFUSED:
        trial.n_faults["invalid argument"] += 1
    else:
        raise WrongError(f"invalid {name} accepted")


def copy(trial: Trial) -> None:
    """Copy the folder while it is open, and check that the copy has the same contents."""
    other, opened = trial.path.with_name("copy"), trial.thing
    shutil.copytree(trial.path, other)
    try:
        with trial.kind.opened(other) as trial.thing:
            different = trial.differs(trial.after)
    except Exception as error:
        raise WrongError("a copy of the open folder does not open") from error
    finally:
        trial.thing = opened
        shutil.rmtree(other)
    if different:
        raise WrongError(f"a copy of the open folder has other {different}")
    trial.n_faults["copy while open"] += 1


def kill_a_process(trial: Trial, *, writes: bool) -> None:
    """Start a process that opens the folder and makes changes, and kill it at a write or at a random moment."""
    trial.close()
    first, n_writes, seconds = trial.number, int(trial.random.integers(300)), float(trial.random.random())
    most = 6 if writes else 100
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            with Countdown(n_writes, kill, writes=True) if writes else nullcontext():
                thing = trial.kind.opened(trial.path, **trial.how)
                for number in range(first, first + most):
                    trial.change(thing, number)
                    os.write(writing, b"+")
            kill()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    if not writes:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    acknowledged = first + len(os.read(reading, most))
    os.close(reading)
    trial.history.append(f"killed after {', '.join(map(trial.name_of, range(first, acknowledged))) or 'no change'}")
    if not os.WIFSIGNALED(status):
        raise WrongError("a process has failed without a fault")
    trial.open(acknowledged)
    trial.n_faults["kill"] += 1
    while trial.number < acknowledged:
        trial.advance()
    if acknowledged < first + most and trial.differs(trial.after):
        trial.advance()
        if different := trial.differs(trial.after):
            raise WrongError(f"neither the last acknowledged change nor the next one is the last: other {different}")


FAULTS: dict[str, Callable[[Trial], None]] = {
    "no fault": Trial.make,
    "a kill at a write": lambda trial: kill_a_process(trial, writes=True),
    "a kill": lambda trial: kill_a_process(trial, writes=False),
    "a full disk": lambda trial: trial.make_during("full disk", full_disk(trial.path, trial.random), lambda: True),
    "a failed write": lambda trial: trial.strike("failed write", fail_to_write, writes=True),
    "an interrupt": lambda trial: trial.strike("interrupt", interrupt, writes=False),
    "an interrupted write": lambda trial: trial.strike("interrupted write", interrupt, writes=True),
    "an invalid argument": give_invalid,
    "a copy": copy,
    "closing and opening": reopen,
    "upkeep": upkeep,
}
FAULT_NAMES = ["no fault", *FAULTS]
SHARDS = "shards"  # the name of sharded stores on the command line; they need Ray


def break_folders(name: str, n: int, seed: int, most: int = 10) -> tuple[Counter[str], list[str]]:
    """Break folders of one class until there were ``n`` faults; return how many of each kind, and all errors."""
    kind, n_faults, wrong = KINDS[name], Counter[str](), list[str]()
    random = Random(seed, *name.encode())
    while n_faults.total() < n and len(wrong) < most:
        one, options = int(random.integers(1 << 31)), kind.variants[int(random.integers(len(kind.variants)))]
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(kind, options, Path(folder) / name, one, n_faults)
            try:
                for _ in range(min(40, n)):
                    if not trial.has_been_asked:
                        trial.step()
                trial.thing.close()
            except Exception as error:
                causes = f"{type(error).__name__}: {error}" + (f" ({error.__cause__!r})" if error.__cause__ else "")
                wrong.append(
                    f"{'sparse ' * trial.sparse}{options}, {trial.how}, seed {one}, {trial.history[-4:]}: {causes}"
                )
                if not isinstance(error, WrongError):
                    traceback.print_exc()
            finally:
                trial.close()
    return n_faults, wrong


def main() -> int:
    """Run the command line; print a line for each class, and all errors."""
    parser = argparse.ArgumentParser(description="Inject faults into durable objects, and compare them with twins.")
    parser.add_argument("number", type=int, help="total number of faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=[*KINDS, SHARDS], default=list(KINDS), help="only these classes")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    n_wrong = 0
    for name in given.only:
        n = -(-given.number // len(given.only))
        if name == SHARDS:
            from broken_shards import break_shards  # needs Ray

            n_faults, wrong = break_shards(n, given.seed)
        else:
            n_faults, wrong = break_folders(name, n, given.seed)
        listed = ", ".join(f"{n} {fault}" for fault, n in sorted(n_faults.items()))
        print(f"{name}: {n_faults.total()} faults ({listed}), {len(wrong)} wrong", flush=True)
        for line in wrong:
            print(f"    {line}", flush=True)
        n_wrong += len(wrong)
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
