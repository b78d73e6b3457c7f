"""Data and rivals for the comparisons of ``MemoryStore``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from .commands import timed
from .labelled_sets import read_lines

K, N_ASKED = 10, 1000
FEATURES = {
    "omniglot": "omniglot_background/hog.npz",
    "coil100": "coil100/mobilenet.npz",
    "flickr8k": "flickr8k/mobilenet.npz",
}


class Vectors(NamedTuple):
    """Vectors to store and queries, of unit length."""

    stored: np.ndarray
    asked: np.ndarray


def unit(X: np.ndarray) -> np.ndarray:
    """Return rows scaled to unit length."""
    return np.asarray(X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9), np.float32)


def components(X: Any, n: int) -> np.ndarray:
    """Return the ``n`` strongest components of sparse rows, scaled to unit length."""
    return unit(TruncatedSVD(n, random_state=0).fit_transform(X))


def clustered(n: int, n_features: int, seed: int = 0) -> Vectors:
    """Return normally distributed vectors around ``n / 100`` centers, which do not depend on the seed."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(n // 100, n_features))
    rng = rng if seed == 0 else np.random.default_rng(seed)
    rows = centers[rng.integers(0, len(centers), n + N_ASKED)]
    rows = unit(rows + 0.7 * rng.normal(size=rows.shape))
    return Vectors(rows[:n], rows[n:])


def low_rank(n: int, n_features: int, rank: int = 20) -> Vectors:
    """Return vectors that depend on ``rank`` numbers, apart from noise, nonlinearly."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(n + N_ASKED, rank)).astype(np.float32)
    rows = np.tanh(hidden @ rng.normal(size=(rank, n_features)).astype(np.float32) / 3.0)
    rows += (0.05 * rng.normal(size=rows.shape)).astype(np.float32)
    rows = unit(rows)
    return Vectors(rows[:n], rows[n:])


def scattered(n: int, n_features: int) -> Vectors:
    """Return normally distributed vectors."""
    rows = unit(np.random.default_rng(0).normal(size=(n + N_ASKED, n_features)))
    return Vectors(rows[:n], rows[n:])


def summaries(folder: Path, n: int, n_features: int) -> Vectors:
    """Return singular components of the words of package summaries, some of which are queries."""
    lines = read_lines(folder / "packages/summaries.jsonl.gz")
    order = np.random.default_rng(0).permutation(len(lines))[: n + N_ASKED]
    words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform([lines[i]["summary"] for i in order])
    rows = components(words, n_features)
    rows = rows[rows.any(axis=1)]
    return Vectors(rows[:-N_ASKED], rows[-N_ASKED:])


def features(folder: Path, name: str) -> Vectors:
    """Return features of pictures, every tenth of which is a query."""
    with np.load(folder / FEATURES[name]) as file:
        rows = unit(file["X"].astype(np.float32))
    rows = rows[rows.any(axis=1)]
    asked = np.arange(0, len(rows), 10)
    return Vectors(np.delete(rows, asked, axis=0), rows[asked][:N_ASKED])


def made_sets(n: int, n_features: int, folder: Path) -> dict[str, Callable[[], Vectors]]:
    """Return functions that make sets of vectors, by name."""
    return {
        "clusters": lambda: clustered(n, n_features),
        "low rank": lambda: low_rank(n, n_features),
        "scattered": lambda: scattered(n, 32),
        "texts": lambda: summaries(folder, n, n_features),
    }


def recall(found: Any, true: Any) -> float:
    """Return the fraction of the true neighbours that were found."""
    n_true = sum(sum(key is not None for key in row) for row in true.tolist())
    pairs = zip(found.tolist(), true.tolist(), strict=True)
    return sum(len(set(one) & set(other) - {None}) for one, other in pairs) / n_true


def graph_of(X: np.ndarray) -> tuple[Any, float]:
    """Return hnswlib's index of some rows, and the seconds to build it."""
    import hnswlib  # type: ignore[import-not-found]

    graph = hnswlib.Index("cosine", X.shape[1])
    graph.init_index(len(X), M=16, ef_construction=100, random_seed=0)
    return graph, timed(lambda: graph.add_items(X, np.arange(len(X)), num_threads=1))[1]


def file_of(X: np.ndarray, kind: str = "Flat") -> tuple[Any, float]:
    """Return faiss's inverted file of some rows, and the seconds to build it."""
    import faiss  # type: ignore[import-not-found]

    faiss.omp_set_num_threads(1)
    index = faiss.index_factory(X.shape[1], f"IVF{int(4 * np.sqrt(len(X)))},{kind}", faiss.METRIC_INNER_PRODUCT)
    return index, timed(lambda: (index.train(X), index.add(X)))[1]
