"""Compare multi-label classifiers over very many labels: ours, napkinXC's PLT and PECOS's XR-Linear, on one thread.

    python asv_benchmarks/compare_extreme.py --data path/to/folder --sets debian_depends \
        --learners ours plt xr_linear --python plt=env/bin/python xr_linear=other/bin/python

A set is a folder with ``X_train.npz``, ``X_test.npz``, ``Y_train.npz`` and ``Y_test.npz``: sparse matrices as scipy
saves them, features and indicators of labels. Each learner runs in a process of its own, with the interpreter named for
it, because PECOS (libpecos) needs an old NumPy. Prints precision and nDCG at 1, 3 and 5, propensity-scored precision at
5, seconds of the processor to train, microseconds a query, the peak of memory of the whole process, data included, and
the size of the model in a file.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"  # before any library reads them

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

RANKS = (1, 3, 5)
_CLOCK = time.process_time


def read_part(folder: Path, part: str) -> Any:
    """Return a matrix of a set: rows of features of unit length, or indicators of labels."""
    matrix = scipy.sparse.csr_matrix(scipy.sparse.load_npz(folder / f"{part}.npz")).astype(np.float32)
    if part.startswith("X"):
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        matrix = scipy.sparse.csr_matrix(scipy.sparse.diags(1.0 / np.maximum(lengths, 1e-12)) @ matrix)
    else:
        matrix.data[:] = 1.0
    matrix = matrix.astype(np.float32)
    matrix.sort_indices()
    return matrix


def _size_of(path: Path) -> int:
    return (
        sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size
    )


def ours(X: Any, Y: Any, queries: Any, folder: Path) -> tuple[Any, float, float, int]:
    """Train the classifier of this package with its defaults, without the examples, which the others do not keep."""
    from cmt_numba import CMTMultilabelClassifier

    few = CMTMultilabelClassifier(random_state=0).fit(X[:2000], Y[:2000])  # lets numba compile
    few.top_labels(queries[:5])
    start = _CLOCK()
    learner = CMTMultilabelClassifier(store_examples=False, random_state=0).fit(X, Y)
    trained = _CLOCK()
    best, _ = learner.top_labels(queries, RANKS[-1])
    done = _CLOCK()
    learner.save(folder / "model")
    return best, trained - start, done - trained, _size_of(folder / "model")


def plt(X: Any, Y: Any, queries: Any, folder: Path) -> tuple[Any, float, float, int]:
    """Train napkinXC's probabilistic label tree with its defaults."""
    from napkinxc.models import PLT

    lists = [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]
    learner = PLT(str(folder / "model"), threads=1, verbose=False)
    start = _CLOCK()
    learner.fit(X, lists)
    trained = _CLOCK()
    best = learner.predict(queries, top_k=RANKS[-1])
    return best, trained - start, _CLOCK() - trained, _size_of(folder / "model")


def xr_linear(X: Any, Y: Any, queries: Any, folder: Path) -> tuple[Any, float, float, int]:
    """Train PECOS's XR-Linear with its defaults."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    start = _CLOCK()
    tree = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"))
    learner = XLinearModel.train(X, Y, C=tree, threads=1)
    trained = _CLOCK()
    scores = learner.predict(queries, only_topk=RANKS[-1], threads=1)
    done = _CLOCK()
    learner.save(str(folder / "model"))
    best = [scores.indices[a:b][np.argsort(-scores.data[a:b])] for a, b in zip(scores.indptr, scores.indptr[1:])]  # noqa: B905
    return best, trained - start, done - trained, _size_of(folder / "model")


LEARNERS: dict[str, Callable[[Any, Any, Any, Path], tuple[Any, float, float, int]]] = {
    "ours": ours,
    "plt": plt,
    "xr_linear": xr_linear,
}


def work(name: str, folder: Path, out: Path) -> None:
    """Train and ask one learner, and write what it answered and what it took to a folder."""
    X, Y, queries = (read_part(folder, part) for part in ("X_train", "Y_train", "X_test"))
    lists, training, predicting, size = LEARNERS[name](X, Y, queries, out)
    best = np.full((len(lists), RANKS[-1]), -1)
    for row, labels in enumerate(lists):
        best[row, : len(labels)] = labels
    np.save(out / "best.npy", best)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    costs = {"train": training, "query": predicting / len(best) * 1e6, "peak": peak, "size": size / 1e9}
    (out / "costs.json").write_text(json.dumps(costs))


def measured(best: np.ndarray, labels: Any, answers: Any) -> list[float]:
    """Return precision and nDCG at each rank, and propensity-scored precision at the last."""
    from cmt_numba.metrics import inverse_propensities, ndcg_at, precision_at

    scored = precision_at(answers, best, RANKS[-1], inverse_propensities=inverse_propensities(labels))
    return [*(precision_at(answers, best, k) for k in RANKS), *(ndcg_at(answers, best, k) for k in RANKS), scored]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare multi-label classifiers over very many labels.")
    parser.add_argument("--data", type=Path, required=True, help="folder of sets")
    parser.add_argument("--sets", nargs="+", default=["bibtex", "delicious", "debtags", "debian_depends"])
    parser.add_argument("--learners", nargs="+", choices=list(LEARNERS), default=list(LEARNERS))
    parser.add_argument("--python", nargs="*", default=[], metavar="LEARNER=PATH", help="interpreters of learners")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.learners[0], options.data / options.sets[0], options.worker)
        return
    from tabulate import tabulate

    interpreters = dict(pair.split("=", 1) for pair in options.python)
    headers = ["learner", *(f"P@{k}" for k in RANKS), *(f"nDCG@{k}" for k in RANKS), "PSP@5"]
    headers += ["train s", "us a query", "peak GB", "model GB"]
    for name in options.sets:
        labels, answers = (read_part(options.data / name, part) for part in ("Y_train", "Y_test"))
        table = []
        for learner in options.learners:
            with tempfile.TemporaryDirectory() as out:
                python = interpreters.get(learner, sys.executable)
                where = ["--data", str(options.data), "--sets", name, "--learners", learner, "--worker", out]
                subprocess.run([python, __file__, *where], check=True)
                costs = json.loads((Path(out) / "costs.json").read_text())
                quality = measured(np.load(Path(out) / "best.npy"), labels, answers)
            table.append([learner, *quality, *costs.values()])
        print(f"\n{name}: {labels.shape[0]} examples, {labels.shape[1]} labels")
        print(tabulate(table, headers, floatfmt=("", *(7 * [".4f"]), ".1f", ".0f", ".2f", ".3f")), flush=True)


if __name__ == "__main__":
    main()
