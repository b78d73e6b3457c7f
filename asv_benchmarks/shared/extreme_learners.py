"""Classifiers over many labels, each in a process of its own: ours, PLT and XR-Linear.

Each may need its own environment. PLT needs napkinXC. XR-Linear needs PECOS, which needs an old NumPy::

    python3 -m venv plt && plt/bin/python -m pip install napkinxc
    python3 -m venv xr && xr/bin/python -m pip install 'numpy<1.25' 'scipy<1.12' 'scikit-learn<1.4' \
        && xr/bin/python -m pip install --no-deps libpecos

XR-Linear uses none of the other dependencies of libpecos. The environments need nothing of this package.
``classifiers.py`` calls :func:`apart`, which runs this file with the other interpreter. All learners use one thread.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads these variables

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

MODULES = {"ours": "cmt_numba", "plt": "napkinxc", "xr_linear": "pecos"}
_CLOCK = time.process_time
_SECONDS_ASKED = 0.3  # minimum total time, for which all queries are repeated
_ROUNDS = 3  # at least

Trained = tuple[Callable[[], Any], float]  # a function that answers all queries, and the seconds to train


class Measured(NamedTuple):
    """The answers of a learner, and their costs."""

    best: np.ndarray  # for each query, best first, padded with -1
    train_seconds: float  # of CPU time
    query_microseconds: float  # of CPU time; the minimum of several rounds of all queries
    peak: float  # megabytes of the whole process, data included
    model: float  # megabytes, in files


def read_part(folder: Path, part: str) -> Any:
    """Return a matrix of a set: rows of features of unit length, or label indicators."""
    matrix = scipy.sparse.csr_matrix(scipy.sparse.load_npz(folder / f"{part}.npz")).astype(np.float32)
    if part.startswith("X"):
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        matrix = scipy.sparse.csr_matrix(scipy.sparse.diags(1.0 / np.maximum(lengths, 1e-12)) @ matrix)
    else:
        matrix.data[:] = 1.0
    matrix = matrix.astype(np.float32)
    matrix.sort_indices()
    return matrix


def resident_peak() -> float:
    """Return the peak memory of this process since :func:`forget_peak`, in megabytes (Linux only)."""
    status = Path("/proc/self/status")
    return float(status.read_text().split("VmHWM:")[1].split()[0]) / 1024 if status.exists() else float("nan")


def forget_peak() -> None:
    """Reset the peak memory to the current memory."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def ours(X: Any, Y: Any, queries: Any, k: int, folder: Path) -> Trained:
    """Train the classifier of this package with its defaults, but without stored examples, like the other learners."""
    from cmt_numba import CMTMultilabelClassifier

    few = CMTMultilabelClassifier(random_state=0).fit(X[:2000], Y[:2000])  # compile all kernels
    few.top_labels(queries[:5])
    forget_peak()
    start = _CLOCK()
    learner = CMTMultilabelClassifier(store_examples=False, random_state=0).fit(X, Y)
    trained = _CLOCK() - start
    learner.save(folder / "model")
    return lambda: learner.top_labels(queries, k)[0], trained


def plt(X: Any, Y: Any, queries: Any, k: int, folder: Path) -> Trained:
    """Train napkinXC's probabilistic label tree with its defaults and a seed. Errors vary by 0.01 between runs."""
    from napkinxc.models import PLT

    lists = [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:])]  # noqa: B905
    learner = PLT(str(folder / "model"), threads=1, seed=0, verbose=False)
    start = _CLOCK()
    learner.fit(X, lists)
    trained = _CLOCK() - start
    learner.load()
    return lambda: learner.predict(queries, top_k=k), trained


def xr_linear(X: Any, Y: Any, queries: Any, k: int, folder: Path) -> Trained:
    """Train PECOS's XR-Linear with its defaults, and query it in its inference format."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    start = _CLOCK()
    tree = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"))
    learner = XLinearModel.train(X, Y, C=tree, threads=1)
    trained = _CLOCK() - start
    learner.save(str(folder / "model"))
    answering = XLinearModel.load(str(folder / "model"), is_predict_only=True)

    def best() -> list[np.ndarray]:
        scores = answering.predict(queries, only_topk=k, threads=1)
        ends = zip(scores.indptr[:-1], scores.indptr[1:])  # noqa: B905
        return [scores.indices[a:b][np.argsort(-scores.data[a:b])] for a, b in ends]

    return best, trained


LEARNERS: dict[str, Callable[[Any, Any, Any, int, Path], Trained]] = {
    "ours": ours,
    "plt": plt,
    "xr_linear": xr_linear,
}


def is_installed(name: str, python: str) -> bool:
    """Return whether an interpreter has the packages of a learner; print a message if it does not."""
    found = subprocess.run([python, "-c", f"import {MODULES[name]}"], capture_output=True, check=False).returncode == 0
    if not found:
        print(f"{name} is left out: {python} cannot import {MODULES[name]}", flush=True)
    return found


def apart(name: str, folder: Path, k: int, python: str = sys.executable) -> Measured:
    """Train a learner on the set in a folder with another interpreter, and query it for the ``k`` best labels."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([python, __file__, name, str(folder), str(k), out], check=True)
        costs = json.loads((Path(out) / "costs.json").read_text())
        return Measured(np.load(Path(out) / "best.npy"), **costs)


def _size_of(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def work(name: str, folder: Path, k: int, out: Path) -> None:
    """Train and query one learner, and write its answers and costs to a folder."""
    X, Y, queries = (read_part(folder, part) for part in ("X_train", "Y_train", "X_test"))
    __import__(MODULES[name])
    forget_peak()
    answer, trained = LEARNERS[name](X, Y, queries, k, out)
    times: list[float] = []
    while len(times) < _ROUNDS or sum(times) < _SECONDS_ASKED:
        start = _CLOCK()
        lists = answer()
        times.append(_CLOCK() - start)
    best = np.full((len(lists), k), -1)
    for row, labels in enumerate(lists):
        best[row, : len(labels)] = labels[:k]
    np.save(out / "best.npy", best)
    microseconds, size = min(times) / len(best) * 1e6, _size_of(out / "model") / 1e6
    costs = dict(zip(Measured._fields[1:], (trained, microseconds, resident_peak(), size)))  # noqa: B905
    (out / "costs.json").write_text(json.dumps(costs))


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
