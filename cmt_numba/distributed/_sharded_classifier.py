"""``ShardedClassifier``, which divides its classes among Ray actors."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError

from .. import _validation as checks
from .._change import Closeable
from .._kernels import as_matrix
from ..estimators import CMTClassifier, check_classes, check_targets, in_one_type, means_of, scales_of_table
from ..journal import JournalError
from ._actors import Actors, Replies, start_actor
from ._classifier_shard import ClassFacts, ClassifierShard, ClassPlan, ExampleShare
from ._cluster import running, start
from ._errors import ClusterError, NoAnswerError, PartialChangeError
from ._folder import read_classifier_list, shard_name, write_classifier_list

_CALLS_UNDER_WAY = 8  # maximum number of pending calls from a client to each shard
_LONGEST = 1e6  # time limit in seconds for learning, effectively unlimited


class ShardedClassifier(Closeable):
    """A :class:`~cmt_numba.CMTClassifier` on several machines, with its classes divided among Ray actors.

    Each class belongs to one shard, and similar classes share a shard if it has room. A shard learns the examples of
    its own classes, and also other examples whose strongest competing class is one of its own. It thus learns to
    distinguish its classes from similar classes in other shards, and all shards produce comparable scores.

    With a ``path``, every shard has a folder, and training results are on disk before a call returns. A shard that
    dies is restarted and opens its folder. Interrupted calls are repeated, and no example is learned twice. Without a
    ``path``, a shard that dies loses its classes, and calls raise :class:`ClusterError`.

    Methods raise ``NotFittedError`` before the first example. They raise :class:`NoAnswerError` if a shard does not
    answer in time, because its classes may score higher, and :class:`ClusterError` if a shard has died with its classes
    or the cluster has shut down.

    Several threads can share a classifier. Ray tasks and actors that receive it as an argument can query it, but not
    train it. The shards stop when :meth:`close` is called or the process that opened the classifier exits.

    Parameters
    ----------
    n_shards : int, optional
        The number of shards. It is required for a new classifier. An existing folder keeps its number of shards.
    path : path-like, optional
        The folder of the classifier, which contains a folder for each shard. A missing folder is created. Every machine
        that may run a shard must find it under this path. By default, the classifier is in memory.
    address : str, optional
        The address of a cluster, passed to :func:`start` unless this process is already connected to Ray.
    timeout : float, default 60.0
        The time limit for answers, in seconds. The first call of each kind has a longer limit, because it may compile
        kernels. Learning has no limit.
    actor_options : dict, optional
        Ray options for the actors, such as ``{"num_cpus": 2}``.
    **options
        Parameters of the :class:`~cmt_numba.CMTClassifier` of each shard. ``max_examples`` is divided by the number of
        shards. ``method`` must be "head", and ``store_examples`` must be True. Scales of dense tables are measured on
        the first examples and stay the same for all shards until the next :meth:`fit`.

    Examples
    --------
    >>> classifier = ShardedClassifier(2, random_state=0)  # doctest: +SKIP
    >>> classifier.fit([[1.0, 0.0], [0.0, 1.0]], ["a", "b"]).predict([[0.9, 0.1]])  # doctest: +SKIP
    array(['a'], dtype='<U1')
    >>> classifier.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        n_shards: int | None = None,
        path: str | os.PathLike[str] | None = None,
        *,
        address: str | None = None,
        timeout: float = 60.0,
        actor_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        _check_options(options)
        checks.check_real("timeout", timeout, 0.0, _LONGEST, above=True)
        folder = None if path is None else Path(path).absolute()
        listed = None if folder is None else read_classifier_list(folder)
        n_shards = _number_of_shards(n_shards, None if listed is None else listed[0])
        is_complete = listed is not None and listed[1]
        if folder is not None and listed is None:
            write_classifier_list(folder, n_shards, complete=False)
        names = [shard_name(number) for number in range(n_shards)]
        places = [None if folder is None else str(folder / name) for name in names]
        plans = [
            ClassPlan(name, place, not is_complete, _options_of_shard(options, number, n_shards))
            for number, (name, place) in enumerate(zip(names, places, strict=True))
        ]
        start(address)
        times = 0 if folder is None else -1
        how: dict[str, Any] = {"max_restarts": times, "max_task_retries": times} | (actor_options or {})
        handles = [start_actor(ClassifierShard, how, plan) for plan in plans]
        self._seed, self._feature_weights = options.get("random_state"), options.get("feature_weights", "auto")
        self._connect(dict(zip(names, handles, strict=True)), timeout, folder)
        self._is_owner = True
        try:
            self._learn_facts()
            if folder is not None and not is_complete:
                write_classifier_list(folder, n_shards, complete=True)
        except BaseException:
            self._asking.stop()
            raise

    def _connect(self, handles: dict[str, Any], timeout: float, folder: Path | None) -> None:
        self._handles, self._timeout, self._folder = handles, timeout, folder
        actors = {name: [handle] for name, handle in handles.items()}
        self._asking, self._teaching = (
            Actors("", actors, 0, seconds, _CALLS_UNDER_WAY) for seconds in (timeout, _LONGEST)
        )
        self._is_closed = False
        self._learning = threading.Lock()
        self._known: list[ClassFacts] | None = None  # the facts of the shards, or None if they may have changed
        self._classes: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"handles": self._handles, "timeout": self._timeout, "folder": self._folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._connect(**state)
        self._is_owner, self._seed, self._feature_weights = False, None, "none"

    # Calls to shards

    def _ask(
        self, actors: Actors, method: str, calls: dict[str, tuple[Any, ...]], kind: tuple[Any, ...] = ()
    ) -> Replies:
        """Call a method of each shard in ``calls`` with the given arguments, and wait for the answers."""
        if self._is_closed:
            raise JournalError("the classifier is closed; open it again")
        return actors.ask(method, calls, kind)

    def _ask_all(self, method: str, *arguments: Any, kind: tuple[Any, ...] = (), patient: bool = False) -> list[Any]:
        """Return the answers of all shards. Raise an error if a shard fails or does not answer."""
        actors = self._teaching if patient else self._asking
        answers = self._ask(actors, method, dict.fromkeys(self._handles, arguments), kind)
        values = answers.all_values()
        if answers.missing:
            raise NoAnswerError(answers.missing, "try again, or open the classifier with a larger timeout")
        return [values[name] for name in self._handles]

    def _learn_facts(self) -> list[ClassFacts]:
        facts = self._ask_all("facts")
        known = [fact.classes for fact in facts if fact.classes is not None and fact.classes.size > 0]
        self._classes = np.sort(np.concatenate(in_one_type("classes", *known))) if known else None
        self._known = facts
        return facts

    def _all_classes(self) -> np.ndarray:
        if self._known is None:
            self._learn_facts()
        if self._classes is None:
            raise NotFittedError("this ShardedClassifier is not fitted: call fit or partial_fit first")
        return self._classes

    @property
    def classes_(self) -> np.ndarray:
        """The sorted classes. A copy in another process returns the classes known at its last call."""
        return self._all_classes()

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of the shards."""
        return tuple(self._handles)

    @property
    def path(self) -> Path | None:
        """The folder, or None for a classifier in memory."""
        return self._folder

    # Learning

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from examples and forget all earlier examples; see :meth:`cmt_numba.CMTClassifier.fit`.

        ``y`` must contain at least one class per shard. The examples are copied to Ray's object store once.

        Raises
        ------
        PartialChangeError
            If only some shards have learned. The keys in this error are classes. Call ``fit`` again.
        """
        return self._teach(X, y, afresh=True)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn from additional examples; see :meth:`cmt_numba.CMTClassifier.partial_fit`."""
        return self._teach(X, y, afresh=False)

    def _teach(self, X: Any, y: Any, *, afresh: bool) -> Self:
        if not self._is_owner:
            raise ClusterError("only the process that opened the classifier can train it")
        X, y = _checked_examples(X, y)
        with self._learning:
            facts = self._known or self._learn_facts()
            known = np.empty(0, y.dtype) if afresh or self._classes is None else self._classes
            if known.size > 0:
                known, y = in_one_type("y", known, y)
            classes, codes = np.unique(y, return_inverse=True)
            if afresh and classes.size < len(facts):
                raise ValueError(f"y must contain at least {len(facts)} classes, one per shard, got {classes.size}")
            owners = self._owners(X, classes, codes, [] if known.size == 0 else facts)
            home = owners[codes]
            shared = running().put(X), running().put(y)
            if known.size > 0:
                scales = next((fact.scales for fact in facts if fact.scales is not None), None)
            else:
                scales = scales_of_table(X, classes.size, self._feature_weights) if isinstance(X, np.ndarray) else None
            rivals = self._rivals(shared, home, scales, from_means=known.size == 0)
            of_home = rivals[np.arange(codes.size), home].copy()
            rivals[np.arange(codes.size), home] = -np.inf
            second = np.where(rivals.max(axis=1) > of_home, rivals.argmax(axis=1), -1)
            numbers = () if afresh else (max(fact.next_number for fact in facts),)
            calls: dict[str, tuple[Any, ...]] = {}
            for shard, name in enumerate(self._handles):
                rows = np.flatnonzero((home == shard) | (second == shard))
                if rows.size > 0:
                    calls[name] = (*shared, ExampleShare(rows, home[rows] == shard, scales), *numbers)
            self._known = None  # the facts may change even if the call fails
            answers = self._ask(self._teaching, "fit" if afresh else "learn", calls)
            self._check_taught(classes, owners, answers)
            self._learn_facts()
        return self

    def _owners(self, X: Any, classes: np.ndarray, codes: np.ndarray, facts: list[ClassFacts]) -> np.ndarray:
        """Return the shard of each class. Known classes stay in their shards."""
        means = as_matrix(means_of(checks.check_rows(X), codes, np.arange(codes.size), classes.size)[0])
        if not facts:
            return divided(means, len(self._handles), np.random.default_rng(0 if self._seed is None else self._seed))
        owners, sizes = np.full(classes.size, -1), np.zeros(len(facts), np.int64)
        centers = np.zeros((len(facts), X.shape[1]), np.float32)
        for shard, fact in enumerate(facts):
            if fact.classes is not None and fact.center is not None:
                if fact.center.size != X.shape[1]:
                    raise ValueError(f"X must have {fact.center.size} features, like earlier ones, got {X.shape[1]}")
                owners[np.isin(classes, fact.classes)] = shard
                sizes[shard], centers[shard] = fact.classes.size, fact.center
        new = np.flatnonzero(owners < 0)
        if new.size > 0:
            owners[new] = assigned(means[new], centers, sizes)
        return owners

    def _rivals(
        self, shared: tuple[Any, Any], home: np.ndarray, scales: np.ndarray | None, *, from_means: bool
    ) -> np.ndarray:
        """Return the score of each shard's best wrong class, or its similarity to class means."""
        if not from_means:
            return np.stack(self._ask_all("rivals", *shared, patient=True), axis=1)
        rivals = np.full((home.size, len(self._handles)), -np.inf, np.float32)
        parts = {name: np.flatnonzero(home == shard) for shard, name in enumerate(self._handles)}
        calls = {
            name: (*shared, ExampleShare(rows, np.ones(rows.size, np.bool_), scales))
            for name, rows in parts.items()
            if rows.size > 0
        }
        values = self._ask(self._teaching, "rivals_of_means", calls).all_values()
        for shard, name in enumerate(self._handles):
            if name in values:
                rivals[:, shard] = values[name]
        return rivals

    def _check_taught(self, classes: np.ndarray, owners: np.ndarray, answers: Replies) -> None:
        if not answers.errors:
            return
        if not answers.values:
            raise next(iter(answers.errors.values()))
        lists: tuple[list[Any], list[Any]] = ([], [])
        for shard, name in enumerate(self._handles):
            lists[name in answers.errors].extend(classes[owners == shard].tolist())
        raise PartialChangeError(*lists, [], answers.errors)

    # Prediction

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class of each row; see :meth:`cmt_numba.CMTClassifier.predict`."""
        classes, scores = self._best(X, 1)
        return classes[np.arange(scores.shape[0]), scores.argmax(axis=1)]

    def top_classes(self, X: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """Return the best classes of each row; see :meth:`cmt_numba.CMTClassifier.top_classes`."""
        k = checks.check_wanted("k", k, self._all_classes().size)
        classes, scores = self._best(X, k)
        if not np.isin(classes, self._all_classes()).all():
            self._learn_facts()  # the shards have learned classes since the last call
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores = np.take_along_axis(scores, order, axis=1)
        positions = np.searchsorted(self._all_classes(), np.take_along_axis(classes, order, axis=1))
        missing = ((0, 0), (0, k - order.shape[1]))
        positions = np.pad(np.where(np.isfinite(scores), positions, -1), missing, constant_values=-1)
        return positions, np.pad(scores, missing, constant_values=-np.inf)

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy of the predictions for ``X``."""
        answers, y = self.predict(X), np.ravel(checks.label_array("y", y))
        checks.check_entries("y", y.size, answers.size)
        return float(np.mean(answers == y))

    def _best(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``k`` best classes of every shard and their scores, in arrays of shape (n, k * n_shards)."""
        self._all_classes()
        centers = [fact.center for fact in self._known or () if fact.center is not None]
        X = checks.check_matrix(X, n_features=centers[0].size if centers else None)
        answers = self._ask_all("best", running().put(X), k, kind=(hasattr(X, "indptr"),))
        there = [answer for answer in answers if answer is not None]
        shape = X.shape[0], -1
        classes = in_one_type("classes", *(part.reshape(-1) for part, _ in there))
        return (
            np.concatenate([part.reshape(shape) for part in classes], axis=1),
            np.concatenate([scores for _, scores in there], axis=1),
        )

    # Closing

    def close(self) -> None:
        """Close the shards and stop their processes. A copy in another process only disconnects."""
        if self._is_closed:
            return
        try:
            if self._is_owner:
                with suppress(NoAnswerError, ClusterError):  # dead shards need no closing: their results are on disk
                    self._ask_all("close")
        finally:
            self._is_closed = True
            if self._is_owner:
                self._asking.stop()

    def __repr__(self) -> str:
        place = "in memory" if self._folder is None else f"in {self._folder}"
        return f"ShardedClassifier({place}) of {len(self._handles)} shards"


def _checked_examples(X: Any, y: Any) -> tuple[Any, np.ndarray]:
    y, _ = check_classes(y, None)
    checks.unmasked("y", y)
    check_targets(y)
    X = checks.check_matrix(X)
    if y.shape != (X.shape[0],):
        raise ValueError(f"y must have one entry for each of the {X.shape[0]} rows of X, got shape {y.shape}")
    checks.check_rows(X)  # raises an error if a value is not finite
    return X, y


def _check_options(options: dict[str, Any]) -> None:
    seed = options.get("random_state")
    if seed is not None:
        checks.check_integer("random_state", seed, 0, 2**32 - 1)
    CMTClassifier(**options)._check_parameters()
    if options.get("method", "head") != "head":
        raise ValueError(f"method must be 'head', as shards cannot compare other scores, got {options['method']!r}")
    if not options.get("store_examples", True):
        raise ValueError("store_examples must be True: the stored examples determine which classes a shard owns")


def _options_of_shard(options: dict[str, Any], number: int, n_shards: int) -> dict[str, Any]:
    """Return the parameters of one shard's classifier, with the shard's own seed and share of ``max_examples``."""
    own = dict(options)
    if own.get("loss", "auto") == "auto":
        own["loss"] = "mira"  # a logistic regression of one shard could not be compared with the margins of another
    if own.get("max_examples") is not None:
        own["max_examples"] = max(1, own["max_examples"] // n_shards)
    if own.get("random_state") is not None:
        own["random_state"] = int(np.random.SeedSequence([own["random_state"], number]).generate_state(1)[0])
    return own


def _number_of_shards(wanted: int | None, listed: int | None) -> int:
    if wanted is not None:
        checks.check_integer("n_shards", wanted, 1, 10_000)
    if listed is None and wanted is None:
        raise ValueError("n_shards must be given for a new classifier")
    if listed is not None and wanted not in (None, listed):
        raise ValueError(f"n_shards must be {listed}, as for the classifier in the folder, or omitted, got {wanted}")
    number = wanted if listed is None else listed
    assert number is not None
    return number


_LARGEST = 1.1  # maximum ratio of a shard's number of classes to the mean number
_ROUNDS = 10  # maximum number of k-means rounds


def divided(means: Any, n_shards: int, generator: np.random.Generator) -> np.ndarray:
    """Divide classes into ``n_shards`` by spherical k-means of their unit-length means, with limited sizes."""
    n = means.shape[0]
    first = generator.permutation(n)[:n_shards]
    owners = np.full(n, -1)
    owners[first] = np.arange(first.size)
    before = owners
    for _ in range(_ROUNDS):
        centers = sums_of(means, owners, n_shards)
        owners = assigned(means, centers, np.zeros(n_shards, np.int64))
        if np.array_equal(owners, before):
            break
        before = owners
    for shard in np.flatnonzero(np.bincount(owners, minlength=n_shards) == 0)[: max(0, n - n_shards + 1)]:
        largest = np.flatnonzero(owners == np.bincount(owners).argmax())
        if largest.size > 1:
            owners[largest[-1]] = shard
    return owners


def assigned(means: Any, centers: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Assign each new class to the nearest shard with room, given the shards' sums of means and sizes."""
    n, n_shards = means.shape[0], sizes.size
    room = np.maximum(int(np.ceil(_LARGEST * (n + sizes.sum()) / n_shards)) - sizes, 0)
    lengths = np.sqrt(np.einsum("ij,ij->i", centers, centers))
    likeness = np.asarray(means @ (centers / np.maximum(lengths, 1e-12)[:, None]).T)
    owners, waiting = np.full(n, -1), np.arange(n)
    while waiting.size > 0:  # each round assigns all waiting classes or fills a shard
        open_shards = np.flatnonzero(room > 0)
        of_waiting = likeness[np.ix_(waiting, open_shards)]
        wanted = open_shards[of_waiting.argmax(axis=1)]
        # Assign classes with the largest margin between the two nearest shards first.
        two_best = np.sort(of_waiting, axis=1)[:, -2:]
        order = np.argsort(two_best[:, 0] - two_best[:, -1], kind="stable")
        for shard in open_shards:
            accepted = waiting[order[wanted[order] == shard][: room[shard]]]
            owners[accepted] = shard
            room[shard] -= accepted.size
        waiting = waiting[owners[waiting] < 0]
    return owners


def sums_of(means: Any, owners: np.ndarray, n_shards: int) -> np.ndarray:
    """Return the sum of each shard's class means: float32, shape (n_shards, n_features). Ignore the owner -1."""
    centers = np.zeros((n_shards, means.shape[1]), np.float32)
    for shard in range(n_shards):
        centers[shard] = np.asarray(means[np.flatnonzero(owners == shard)].sum(axis=0)).reshape(-1)
    return centers
