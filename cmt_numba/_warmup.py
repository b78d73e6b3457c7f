"""Compile kernels ahead of time, in parallel processes."""

import copy
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from typing import Any, Self

import numpy as np

KINDS = ("tree", "store", "classifier", "multilabel", "retriever", "bandit", "text", "sequences")
"""Kinds of objects that :func:`warmup` can compile kernels for."""

_OTHERS = ("store", "text", "sequences")  # need hardly any kernels of trees
_FORMS = ("dense", "sparse")
_FEW = 60  # number of rows, enough to split leaves and to train
_MANY = 1_100  # number of rows, enough for a store to search only the nearest lists of its index
_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def warmup(kinds: Iterable[str] = KINDS, *, n_jobs: int | None = None, progress: bool | None = None) -> None:
    """Compile kernels ahead of time, for example while building a container image.

    Without ``warmup``, the first call of each method compiles its kernels and saves them on disk. The folder is
    ``NUMBA_CACHE_DIR``, by default the package's ``__pycache__`` folders or, if these are not writable, the user's
    cache folder. ``warmup`` makes these calls with a few dense and sparse rows. Later processes load the saved kernels
    if they run as the same user on the same type of processor. The saved kernels take precedence over kernels from a
    platform wheel, which are compiled for a baseline processor.

    Parameters
    ----------
    kinds : iterable of str, default all
        The kinds of objects to compile kernels for: "tree" (:class:`ContextualMemoryTree`), "store"
        (:class:`MemoryStore`), "classifier" (:class:`CMTClassifier`), "multilabel" (:class:`CMTMultilabelClassifier`),
        "retriever" (:class:`CMTRetriever`), "bandit" (:mod:`cmt_numba.bandits`), "text" (:class:`TextClassifier`,
        :class:`SubwordVectors` and :class:`FastTextClassifier`), "sequences" (:mod:`cmt_numba.sequences`).
    n_jobs : int, optional
        Number of parallel processes; by default the number of processors.
    progress : bool, optional
        Whether to show a progress bar on standard error; by default only on a terminal.

    Raises
    ------
    RuntimeError
        If a process fails. The message contains its error output.

    Examples
    --------
    >>> import cmt_numba
    >>> cmt_numba.warmup(["tree"])  # doctest: +SKIP
    """
    wanted = [kinds] if isinstance(kinds, str) else list(dict.fromkeys(kinds))
    for kind in wanted:
        if kind not in KINDS:
            raise ValueError(f"each kind must be one of {', '.join(KINDS)}, got {kind!r}")
    n_jobs = (os.cpu_count() or 1) if n_jobs is None else n_jobs
    if n_jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, got {n_jobs}")
    for name, value in (("CMT_NUMBA_CACHE", "0"), ("NUMBA_DISABLE_JIT", "1")):
        if os.environ.get(name) == value:
            raise ValueError(f"compiled code cannot be cached with {name}={value}: unset {name}")
    if wanted:
        _run(["insert", *wanted], n_jobs, progress)


class _Process:
    """A process that compiles the kernels of one part after another, so that it imports the package once."""

    def __enter__(self) -> Self:
        path = os.pathsep.join(filter(None, (_PACKAGE_FOLDER, os.environ.get("PYTHONPATH"))))
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}._warmup"],
            env={**os.environ, "PYTHONPATH": path, "CMT_NUMBA_SHIPPED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()
        self._errors.close()

    def compile(self, part: str) -> None:
        """Let the process run :func:`make_calls`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{part}\n")
            self._process.stdin.flush()
        if self._process.stdout.readline() != f"{part}\n":
            status = self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"compiling for {part!r} failed with status {status}: {self._errors.read().strip()}")


def _run(parts: list[str], n_jobs: int, progress: bool | None) -> None:
    """Run the parts in parallel: those that need the kernels of the first part after it, the others at once."""
    from tqdm import tqdm

    own = threading.local()  # the process of each thread

    def start() -> None:
        own.process = processes.enter_context(_Process())

    def compile_part(part: str) -> None:
        own.process.compile(part)

    hidden = None if progress is None else not progress  # None: only on a terminal
    with (
        tqdm(total=len(parts), desc="compiling", disable=hidden, file=sys.stderr) as bar,
        ExitStack() as processes,
        ThreadPoolExecutor(n_jobs, initializer=start) as pool,
    ):
        calls = [pool.submit(compile_part, part) for part in parts[:1] + [part for part in parts if part in _OTHERS]]
        try:
            calls[0].result()
            calls += [pool.submit(compile_part, part) for part in parts[1:] if part not in _OTHERS]
            for call in as_completed(calls):
                call.result()
                bar.update()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def make_calls(part: str) -> None:
    """Call the methods of a part with dense and sparse rows of float32 and float64."""
    import scipy.sparse

    rng = np.random.default_rng(0)
    for form in _FORMS:
        for dtype in (np.float64, np.float32):
            X: Any = rng.normal(size=(_FEW, 8)).astype(dtype)
            if form == "sparse":
                X = scipy.sparse.csr_array(X * (rng.random(X.shape) < 0.5))
            _CALLS[part](X)


def _insert(X: Any) -> None:
    from .tree import ContextualMemoryTree

    tree = ContextualMemoryTree(random_state=0)
    tree.insert(X)
    tree.query(X)


def _tree(X: Any) -> None:
    from .tree import ContextualMemoryTree

    bounded = ContextualMemoryTree(max_memories=_FEW, random_state=0)
    bounded.insert(X)
    bounded.query(X)
    bounded.insert(X[:5])
    tree = ContextualMemoryTree(n_trees=2, random_state=0)
    ids = tree.insert(X)
    hits = tree.query(X, 3, epsilon=0.5)
    assert hits.propensities.shape == hits.ids.shape
    tree.update(X, hits, hits.ids == ids[:, None])  # rewards that depend on memories, so that the tree learns
    tree.query(X, among=ids[:-5])
    tree.query(X, among=ids[:2])
    tree.teach(X, ids)
    tree.replace(ids[:2], X[:2])
    tree.remove(ids[:2])
    tree.reroute(3)
    tree.compact()
    copy.deepcopy(tree).check_invariants()


def _store(X: Any) -> None:
    from .store import MemoryStore

    store = MemoryStore(random_state=0)
    keys = list(range(_FEW))
    store.add(keys, X, [{"even": i % 2 == 0} for i in keys])
    store.query(X, 3)
    store.query(X[:1], 3, where={"even": True})
    for _ in range(4):  # until the ranking that was learned is used
        shown = store.query(X, 3).keys
        store.feedback(X, shown, np.tile([0.0, 0.0, 1.0], (_FEW, 1)))
    store.query(X[:1], 3)
    store.upsert(keys[:2], X[:2])
    store.delete(keys[:2])
    store = MemoryStore(random_state=0)
    store.add(keys, X, texts=[f"text {i}" for i in keys])
    store.query(X[:1], 3, texts=["texd 1"], fuzzy=True)
    many = list(range(_MANY))
    store = MemoryStore(random_state=0)
    store.add(many, X[[i % _FEW for i in many]])
    store.query(X, 3)


def _classifier(X: Any) -> None:
    from .estimators import CMTClassifier

    y = [i % 5 for i in range(_FEW)]
    learned = CMTClassifier(random_state=0).fit(X, y)
    learned.predict_proba(X)
    learned.partial_fit(X, y).partial_fit(X[:2], y[:2])
    learned.kneighbors(X)
    learned.set_params(method="scored_neighbors").kneighbors(X)
    learned.set_params(method="head")
    learned.remove([0])
    CMTClassifier(loss="softmax", random_state=0).fit(X, y)


def _multilabel(X: Any) -> None:
    from .estimators import CMTMultilabelClassifier

    Y = np.random.default_rng(0).random((_FEW, 5)) < 0.4
    learned = CMTMultilabelClassifier(random_state=0).fit(X, Y)
    learned.predict(X)
    learned.top_labels(X)
    learned.partial_fit(X, Y)


def _retriever(X: Any) -> None:
    from .estimators import CMTRetriever

    for values in (np.random.default_rng(0).normal(size=(_FEW, 4)), [str(i) for i in range(_FEW)]):
        learned = CMTRetriever(random_state=0).fit(X, values)
        learned.predict(X)
        ids = learned.kneighbors(X, return_distance=False)
        learned.feedback(X, ids, np.zeros(ids.shape))
        learned.partial_fit(X, values)
        learned.remove(np.arange(2))


def _bandit(X: Any) -> None:
    from .bandits import CMTBandit, LinUCB

    for keys in (None, X):
        bandit = CMTBandit(n_candidates=8, n_trees=2, n_bits=8, random_state=0).add_actions(np.arange(_FEW), keys)
        for _ in range(2):
            decisions = bandit.act(X)
            bandit.reward(decisions.ids, np.ones(_FEW))
        bandit.remove_actions([0])
    policy = LinUCB(3, random_state=0)
    policy.learn(X, policy.act(X).actions, np.ones(_FEW))
    policy.act(X)


def _text(X: Any) -> None:
    from .text import FastTextClassifier, SubwordVectors, TextClassifier

    texts = [f"word{i % 7} word{i % 3}" for i in range(_FEW)]
    for method in ("skipgram", "cbow"):
        SubwordVectors(4, method=method, min_count=1, n_epochs=1, random_state=0).fit(texts)
    FastTextClassifier(4, n_epochs=1, random_state=0).fit(texts, [i % 5 for i in range(_FEW)]).predict(texts)
    classifier = TextClassifier(random_state=0).fit(texts, [i % 5 for i in range(_FEW)])
    classifier.partial_fit(texts[:1], [5])
    classifier.predict(texts)
    classifier.remove([0])


def _sequences(X: Any) -> None:
    from .sequences import EditDistance, SequenceMemory, VPTree

    words = [f"{i % 3}{i * i}{i % 5}" for i in range(_FEW)]
    distance = EditDistance("0123456789")
    distance.nearest(words[:2], words)
    distance.pairwise(words[:2], words)
    for index in (VPTree(distance, random_state=0), SequenceMemory(distance, random_state=0)):
        index.insert(words)
        index.query(words[:2])
    distance.align(*words[:2])
    distance.fit(words, words[1:20], list(range(19)))


_CALLS: dict[str, Callable[[Any], None]] = {
    "insert": _insert,
    "tree": _tree,
    "store": _store,
    "classifier": _classifier,
    "multilabel": _multilabel,
    "retriever": _retriever,
    "bandit": _bandit,
    "text": _text,
    "sequences": _sequences,
}

if __name__ == "__main__":
    for line in sys.stdin:
        make_calls(line.strip())
        print(line, end="", flush=True)
