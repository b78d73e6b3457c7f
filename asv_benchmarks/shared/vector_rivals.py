"""Searches for vectors: those of a store, and of other libraries' indexes, each with the settings to try."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from cmt_numba import MemoryStore

from .commands import fastest, timed
from .vectors import K, Vectors, file_of, graph_of, recall

Search = Callable[[np.ndarray], Any]


TARGETS = (0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


class Measured(NamedTuple):
    """The recall of a search, and its microseconds per row in a batch and for single rows."""

    recall: float
    batch: float
    single: float


def measured(search: Search, asked: np.ndarray, true: np.ndarray) -> Measured:
    """Return the recall and the times of a search."""
    search(asked[:1])
    found, batch = fastest(search, asked, n_rows=len(asked))
    ones = np.split(asked[:200], 200)
    single = fastest(lambda: [search(one) for one in ones], n_rows=200)[1]
    return Measured(recall(np.asarray(found), true), batch, single)


def of_store(data: Vectors, true: np.ndarray) -> tuple[float, list[Measured]]:
    """Return the seconds to fill a store, and what is measured with each target recall."""
    store = MemoryStore(random_state=0, n_threads=1)
    few = data.stored[:2000]
    MemoryStore(random_state=0, n_threads=1).add(range(len(few)), few)  # compile
    seconds = timed(store.add, range(len(data.stored)), data.stored)[1]

    def search(target: float) -> Search:
        return lambda some: store.query(some, K, target_recall=target).keys

    return seconds, [measured(search(target), data.asked, true) for target in TARGETS]


class Rival(NamedTuple):
    """An index, the seconds to build it, and its searches from the fastest to the slowest."""

    name: str
    seconds: float
    searches: Iterator[tuple[str, Search]]


def rivals_of(X: np.ndarray) -> Iterator[Rival]:
    """Yield the installed rivals with an index of the rows of ``X``, which have unit length."""
    if find_spec("faiss"):
        for kind, factors in (("SQ8", (1,)), (f"PQ{X.shape[1] // 4}x4fs,RFlat", (4, 10)), ("RaBitQ,RFlat", (4, 10))):
            yield Rival(f"faiss IVF,{kind}", *_of_faiss(X, kind, factors))
    if find_spec("hnswlib"):
        graph, seconds = graph_of(X)
        yield Rival("hnswlib", seconds, _of_graph(graph))
    if find_spec("scann"):
        yield Rival("ScaNN", *_of_scann(X))


def _of_faiss(X: np.ndarray, kind: str, factors: tuple[int, ...]) -> tuple[float, Iterator[tuple[str, Search]]]:
    import faiss  # type: ignore[import-not-found]

    index, seconds = file_of(X, kind)

    def searches() -> Iterator[tuple[str, Search]]:
        for n_probes in (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 512):
            for factor in factors:
                faiss.extract_index_ivf(index).nprobe = n_probes
                if len(factors) > 1:
                    index.k_factor = factor
                yield f"{n_probes} lists, {factor}", lambda some: index.search(some, K)[1]

    return seconds, searches()


def _of_graph(graph: Any) -> Iterator[tuple[str, Search]]:
    for ef in (10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 400):
        graph.set_ef(ef)
        yield f"ef {ef}", lambda some: graph.knn_query(some, K, num_threads=1)[0]


def _of_scann(X: np.ndarray) -> tuple[float, Iterator[tuple[str, Search]]]:
    import scann  # type: ignore[import-not-found]

    builder = scann.scann_ops_pybind.builder(X, K, "dot_product")
    builder = builder.tree(int(2 * np.sqrt(len(X))), 20, training_sample_size=len(X))
    builder = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(100)
    index, seconds = timed(builder.build)

    def searches() -> Iterator[tuple[str, Search]]:
        for n_leaves in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            for n_more in (40, 150):
                how = {"leaves_to_search": n_leaves, "pre_reorder_num_neighbors": n_more}

                def search(some: np.ndarray, how: dict[str, int] = how) -> Any:
                    if len(some) == 1:
                        return index.search(some[0], **how)[0][None]
                    return index.search_batched(some, **how)[0]

                yield f"{n_leaves} leaves, {n_more}", search

    return seconds, searches()
