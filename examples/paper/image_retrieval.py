"""Table 2: find an image by a new caption.

    python examples/paper/image_retrieval.py --data path/to/folder

The memory stores captions of training images as tf-idf vectors, with the features of the image as value. Queries are
captions of test images. The reward is the cosine similarity of the found and the correct image (section 4.4).

In the paper, on Flickr8k, the unsupervised tree is 26.0 times as fast as a linear scan and 33,000 times as fast as
scikit-learn's KD-tree, the supervised tree 6.0 and 7,700 times, with rewards that differ by several thousandths. The
paper's KD-tree used 2^20 dense features. Here it uses ``--components`` components by truncated SVD, so the speedup over
it is smaller; the linear scan and the trees use all features. The linear scan is a sparse matrix product of 256 queries
at a time, which is faster than single scans.

The last row is ``CMTRetriever`` with search by value: it learns to predict the image of a caption, and its index holds
each image once.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from learners import ExactNeighbour
from reporting import make_parser, measuring, new_figure, print_table, save, seconds
from sklearn.decomposition import TruncatedSVD
from sklearn.neighbors import KDTree
from sklearn.preprocessing import normalize
from stand_ins import CaptionedImages, flickr

from cmt_numba import CMTRetriever, ContextualMemoryTree
from cmt_numba.rewards import ValueCosine

SCAN, RANDOM = "linear scan", "random memory"
PAPER = {"1 tree, unsupervised": 26.0, "1 tree, supervised": 6.0}
"""Speedup of the paper's trees over its linear scan on Flickr8k."""


class Outcome(NamedTuple):
    """Results of one search method."""

    search: str
    reward: float  # mean cosine of found and correct images
    build_seconds: float
    query_microseconds: float
    speedup: float = 1.0  # over the linear scan
    speedup_over_kd_tree: float = 1.0
    paper: float | None = None  # the paper's speedup over its linear scan


def _measured(
    name: str, data: CaptionedImages, build: Callable[[], Any], search: Callable[[Any], np.ndarray]
) -> Outcome:
    """Return the results of a search that returns positions of stored captions, timed by the faster of two runs."""
    building, index = seconds(build)
    runs = [seconds(lambda: search(index)) for _ in range(2)]
    reward = ValueCosine(data.images, data.answers)
    found = runs[0][1].astype(np.int64)[:, None]
    mean = float(reward(np.arange(found.size), found).mean())
    return Outcome(name, mean, building, min(took for took, _ in runs) / found.size * 1e6)


def _tree(data: CaptionedImages, n_trees: int, n_passes: int) -> ContextualMemoryTree:
    """Return a tree of all captions, trained with each caption as a query that excludes its own memory."""
    tree = ContextualMemoryTree(n_trees=n_trees, n_threads=1, random_state=0)
    ids = tree.insert(data.captions)
    if n_passes > 0:
        tree.learn(data.captions, ValueCosine(data.images, data.images), own_ids=ids, n_passes=n_passes)
    return tree


def compare(data: CaptionedImages, n_components: int = 64, n_passes: int = 2) -> list[Outcome]:
    """Return the results of all search methods."""
    some = CaptionedImages(data.captions[:200], data.images[:200], data.queries[:50], data.answers[:50])
    _tree(some, 1, 1).query(some.queries)  # compile all kernels
    CMTRetriever().fit(some.captions, some.images).query(some.queries)
    drawn = np.random.default_rng(0).integers(data.captions.shape[0], size=data.queries.shape[0])
    outcomes = [
        _measured(
            SCAN,
            data,
            lambda: ExactNeighbour().fit(data.captions, np.arange(data.captions.shape[0])),
            lambda scan: scan.predict(data.queries),
        ),
        _kd_tree(data, n_components),
        _measured(RANDOM, data, lambda: None, lambda _: drawn)._replace(query_microseconds=np.nan),
    ]
    for n_trees, n_probes in ((1, 1), (8, 8), (8, 32)):
        leaves = f", {n_probes} leaves" if n_probes > n_trees else ""
        for kind, passes in (("unsupervised", 0), ("supervised", n_passes)):
            name = f"{n_trees} tree{'s' if n_trees > 1 else ''}{leaves}, {kind}"
            outcomes.append(
                _measured(
                    name,
                    data,
                    lambda: _tree(data, n_trees, passes),  # noqa: B023
                    lambda tree: tree.query(data.queries, n_probes=n_probes).ids[:, 0],  # noqa: B023
                )
            )
    outcomes.append(
        _measured(
            "CMTRetriever by value",
            data,
            lambda: CMTRetriever(random_state=0).fit(data.captions, data.images),
            lambda fitted: fitted.query(data.queries).ids[:, 0],
        )
    )
    scan, kd_tree = (outcome.query_microseconds for outcome in outcomes[:2])
    return [
        outcome._replace(
            speedup=scan / outcome.query_microseconds,
            speedup_over_kd_tree=kd_tree / outcome.query_microseconds,
            paper=PAPER.get(outcome.search),
        )
        for outcome in outcomes
    ]


def _kd_tree(data: CaptionedImages, n_components: int) -> Outcome:
    """Return the results of scikit-learn's KD-tree on components of the keys, scaled to unit length."""
    n_components = min(n_components, min(data.captions.shape) - 1)
    svd = TruncatedSVD(n_components, random_state=0).fit(data.captions)
    keys, queries = (normalize(svd.transform(X)) for X in (data.captions, data.queries))
    return _measured(
        f"KD-tree, {n_components} components",
        data,
        lambda: KDTree(keys),
        lambda tree: tree.query(queries, k=1, return_distance=False)[:, 0],
    )


def plot(outcomes: Sequence[Outcome], folder: Path) -> Path:
    """Save a plot of rewards against times."""
    figure, (ax,) = new_figure()
    for outcome in outcomes:
        if outcome.search == RANDOM:
            ax.axhline(outcome.reward, color="gray", linestyle=":", label=RANDOM)
        else:
            ax.plot(outcome.query_microseconds, outcome.reward, "o", label=outcome.search)
    ax.set_xscale("log")
    ax.set_xlabel("microseconds per query")
    ax.set_ylabel("mean reward")
    ax.set_title("Caption to image (the paper's Table 2)")
    ax.legend(fontsize="x-small")
    return save(figure, folder, "image_retrieval")


def main(arguments: Sequence[str] | None = None) -> list[Outcome]:
    """Run the command line and return the results."""
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=int, help="maximum number of images per part")
    parser.add_argument(
        "--components", type=int, default=64, help="number of components of the KD-tree's keys (default: 64)"
    )
    options = parser.parse_args(arguments)
    if options.data is None:
        parser.error("--data is needed")
    with measuring(parser):
        data = flickr(options.data, options.images)
        outcomes = compare(data, options.components)
    n, width = data.captions.shape
    title = f"Flickr8k: {n} captions stored as {width} words, {data.queries.shape[0]} asked"
    headers = ["search", "reward", "build s", "us a query", "times a scan", "times the KD-tree", "paper: times a scan"]
    print_table(title, outcomes, headers, ("", ".4f", ".2f", ".1f", ".1f", ".1f", ".1f"))
    print(
        "\nPaper: rewards differ by the order of 0.001 from the scan's; 26.0 (6.0 supervised) times as fast as a scan,"
    )
    print("33,000 (7,700) times as fast as a KD-tree of all features.")
    plot(outcomes, options.output)
    return outcomes


if __name__ == "__main__":
    main()
