"""A plot of the shape of a forest."""

from typing import Any

import numpy as np

from .._forest import invariants
from .forest import Forest


def plot_forest(forest: Forest) -> Any:
    """Return a figure with histograms of leaf depths and sizes, and the accuracy of the routers at each depth."""
    from matplotlib.figure import Figure

    leaves, accuracy = forest.leaves(), forest.lock.read(lambda: router_accuracy(forest))
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    depths, sizes, routers = figure.subplots(1, 3)
    depths.hist(leaves.depth, bins=np.arange(leaves.depth.max() + 2) - 0.5)
    depths.set(xlabel="depth of a leaf", ylabel="leaves", title=f"{leaves.size.size:,} leaves")
    sizes.hist(leaves.size, bins=np.arange(leaves.size.max() + 2) - 0.5)
    sizes.set(xlabel="memories in a leaf", ylabel="leaves", title=f"{forest.n_memories:,} memories")
    routers.plot(np.arange(accuracy.size), accuracy, marker="o")
    routers.set(xlabel="depth of a router", ylabel="accuracy", title="Routers during inserts", ylim=(0.0, 1.02))
    return figure


def router_accuracy(forest: Forest) -> np.ndarray:
    """Return, for each depth, the fraction of inserted memories that routers sent to the correct side."""
    state = forest.state
    if state is None:
        return np.empty(0)
    counts = np.zeros((invariants.depth(state), 2), np.int64)  # examples and mistakes
    for t in range(forest.n_trees):
        for depth, level in enumerate(invariants.levels(state, t)):
            routers = state.nodes[t, level[level >= 0]]
            if routers.size > 0:
                counts[depth] += routers["examples"].sum(), routers["mistakes"].sum()
    examples, mistakes = counts.T
    return 1.0 - mistakes / np.maximum(examples, 1)
