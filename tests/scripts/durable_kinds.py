"""The durable classes that ``break_folders.py`` breaks: how to open them, their changes and the states to compare."""

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from internals import folder_of, pending_decisions

from cmt_numba import (
    CMTClassifier,
    CMTMultilabelClassifier,
    CMTRetriever,
    ContextualMemoryTree,
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
    if folder_of(tree) is not None:
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
        state["file"] = saved(estimator)
        name = "decision_function" if hasattr(estimator, "classes_") else "predict"
        with suppress(LookupError):  # if a retriever has no memories
            state["answers"] = getattr(estimator, name)(PROBES)
    return state


# Changes of stores

WORDS = ["rain", "wind", "snow", "song", "drum", "flute", "bread", "soup", "plum", "goal", "ball", "net"]
QUESTIONS = ["rain and wind", "a song on a flute", "bread", "a goal"]


def some_texts(n: int, random: Random) -> list[str]:
    return [" ".join(random.choice(WORDS, int(random.integers(1, 6)))) for _ in range(n)]


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
    store.sync()  # a crash may otherwise lose the results of queries, on which evictions depend


def texts_and_vectors(random: Random, n: int) -> dict[str, Any]:
    """Return texts of ``n`` memories or queries, half of the time with vectors."""
    return {"texts": some_texts(n, random), "X": random.rows(n) if random.random() < 0.5 else None}


def add_texts(store: Any, random: Random) -> None:
    n, first = int(random.integers(1, 12)), int(random.integers(10**9))
    store.add([f"{first}.{i}" for i in range(n)], **texts_and_vectors(random, n))


def upsert_texts(store: Any, random: Random) -> None:
    keys = [*some_keys(store, random), f"new {random.integers(10**9)}"]
    store.upsert(keys, **texts_and_vectors(random, len(keys)))


def reward_texts(store: Any, random: Random) -> None:
    given = texts_and_vectors(random, 3)
    store.feedback(keys=some_keys(store, random, 3), rewards=random.random(3), **given)


def query_texts(store: Any, random: Random) -> None:
    store.query(k=3, **texts_and_vectors(random, 3))
    store.sync()


def state_of_store(store: Any) -> State:
    store.check_invariants()
    keys = sorted(store, key=str)
    if not keys:
        return {"keys": keys}
    items = store.get(keys)
    vectors = items.vectors.toarray() if scipy.sparse.issparse(items.vectors) else items.vectors
    state: State = {"keys": keys, "vectors": vectors, "payloads": items.payloads, "texts": items.texts}
    return state | {"file": saved(store)}


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
        ids = sorted(pending_decisions(policy))[:3]
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
    invalid: dict[str, Callable[[Any], Any]]
    ask: Callable[[Any], Any]
    state: Callable[[Any], State]
    variants: tuple[dict[str, Any], ...]
    upkeep: tuple[str, ...] = ("checkpoint",)  # names of methods


def variants_of(*variants: dict[str, Any], **options: Any) -> tuple[dict[str, Any], ...]:
    """Return sets of options with a seed and with other options that all share."""
    return tuple({"random_state": 7, **options, **variant} for variant in variants)


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
        invalid={
            "width": lambda estimator: estimator.partial_fit(np.ones((3, WIDTH + 1)), y),
            "NaN": lambda estimator: estimator.partial_fit(np.full((3, WIDTH), np.nan), y),
            "weights": lambda estimator: estimator.partial_fit(PROBES[:3], y, sample_weight=[-1.0, np.inf, 1.0]),
            "lengths": lambda estimator: estimator.partial_fit(PROBES[:2], y),
        },
        ask=lambda estimator: getattr(estimator, "predict_proba", estimator.kneighbors)(PROBES),
        state=state_of_estimator,
        variants=variants_of(*variants),
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
        invalid={
            "width": lambda policy: policy.act(np.ones((2, WIDTH + 1))),
            "NaN": lambda policy: policy.act(np.full((2, WIDTH), np.nan)),
            "rewards": lambda policy: policy.learn(PROBES[:2], [0, 1], [np.nan, 0.0]),
            "actions": lambda policy: policy.remove_actions([10**8]),
        },
        ask=lambda policy: policy.probabilities(PROBES),
        state=state_of_policy,
        variants=variants_of(*variants),
    )


KINDS = {
    "tree": Kind(
        new_twin=ContextualMemoryTree,
        opened=ContextualMemoryTree.open,
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
        upkeep=("checkpoint", "sync"),
        invalid={
            "width": lambda tree: tree.insert(np.ones((2, WIDTH + 1))),
            "NaN": lambda tree: tree.insert(np.full((2, WIDTH), np.nan)),
            "ids": lambda tree: tree.remove([10**9]),
            "rewards": lambda tree: tree.update(PROBES, deepcopy(tree).query(PROBES, 1), np.full(12, 2.0)),
        },
        ask=lambda tree: tree.query(PROBES, 2),
        state=state_of_tree,
        variants=variants_of(
            {},
            {"max_memories": 30, "eviction": "oldest"},
            {"max_memories": 30, "eviction": "random"},
            {"max_memories": 30, "eviction": "least_recently_returned"},
            n_trees=2,
            leaf_multiplier=1.0,
            n_threads=1,
        ),
    ),
    "classifier": kind_of_estimator(
        CMTClassifier,
        one_class,
        {"remove": remove_examples, "remove_classes": remove_a_class, "calibrate": calibrate},
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
        invalid={
            "lengths": lambda classifier: classifier.partial_fit(["rain"], ["a", "b"]),
            "texts": lambda classifier: classifier.partial_fit([3], ["a"]),
            "weights": lambda classifier: classifier.partial_fit(["rain"], ["a"], sample_weight=[-1.0]),
            "ids": lambda classifier: classifier.remove(["nowhere"]),
        },
        ask=lambda classifier: classifier.predict(QUESTIONS),
        state=state_of_texts,
        variants=variants_of({}),
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
            "add texts": add_texts,
            "upsert texts": upsert_texts,
            "feedback of texts": reward_texts,
            "query of texts": query_texts,
        },
        upkeep=("sync",),
        invalid={
            "width": lambda store: store.add(["x", "y"], np.ones((2, WIDTH + 1))),
            "NaN": lambda store: store.add(["x", "y"], np.full((2, WIDTH), np.nan)),
            "twice": lambda store: store.add(["x", "x"], PROBES[:2]),
            "keys": lambda store: store.delete(["nowhere"]),
        },
        ask=lambda store: store.query(PROBES, 2),
        state=state_of_store,
        variants=variants_of(
            {"metric": "cosine"},
            {"metric": "inner_product"},
            {"metric": "euclidean"},
            {"metric": "euclidean", "max_items": 30, "eviction": "oldest"},
            {"metric": "inner_product", "max_items": 30},
            n_threads=1,
        ),
    ),
}
