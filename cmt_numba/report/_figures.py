"""Plots of results of evaluations and of learned weights."""

import numpy as np

from .._feedback import LearnedSummary
from ..evaluation import BatchResult, ProgressiveResult, calibration_error
from ._page import FIRST, SECOND, THIRD, Drawing, new_axes
from ._tables import MEASURES


def learning_curve(result: ProgressiveResult) -> Drawing:
    """Plot the main metric against the number of examples."""
    name = next(iter(result.metrics))
    n, so_far, recent = result.curve["n_examples"], result.curve[name], result.curve[f"{name}_recent"]
    measure = MEASURES.get(name, name)

    axes = new_axes(wide=True)
    axes.plot(n, so_far, color=FIRST, linewidth=2, label="all examples so far")
    axes.plot(n, recent, color=SECOND, linewidth=1.5, linestyle="--", label="since the last point")
    if result.task == "multiclass":
        majority = 1.0 - np.array(result.curve["majority_accuracy"])
        axes.plot(n, majority, color=THIRD, linewidth=1.2, linestyle=":", label="most frequent class so far")
    axes.set(xscale="log", xlabel="examples", ylabel=measure)
    axes.xaxis.set_major_formatter(_whole)
    axes.set_ylim(bottom=0.0)
    axes.legend()
    caption = (
        f"{_sentence(measure)} by number of examples, each predicted before it is learned: {so_far[-1]:.4f} over all "
        f"{n[-1]:,} examples and {recent[-1]:.4f} over the last {n[-1] - (n[-2] if len(n) > 1 else 0):,} examples."
    )
    return Drawing("curve", f"{_sentence(measure)} by number of examples", caption, axes, wide=True)


def error_by_shots(result: ProgressiveResult) -> Drawing:
    """Plot the error against the number of earlier examples of the class."""
    shots, error, n = (np.array(result.by_shots[name], np.float64) for name in ("n_shots", "error", "n_examples"))
    # Few examples have any one large number of shots, so a point there covers a range of numbers.
    bins = np.unique(np.geomspace(1, shots.max() + 2, 40).astype(np.int64)) - 1
    place = np.searchsorted(bins, shots, side="right") - 1
    weight = np.bincount(place, n)
    filled = weight > 0
    center, mean = (np.bincount(place, values * n)[filled] / weight[filled] for values in (shots, error))

    axes = new_axes()
    axes.plot(center, mean, color=FIRST, linewidth=2, marker="o", markersize=3.5)
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set(xlabel="earlier examples of the class", ylabel="error", ylim=(0.0, 1.05))
    axes.xaxis.set_major_formatter(_whole)
    axes.set_xlim(left=-0.1)
    caption = f"Error by number of earlier examples of the class: {error[0]:.3f} for the first example."
    return Drawing("shots", "Error by number of earlier examples of the class", caption, axes)


def calibration(result: BatchResult) -> Drawing:
    """Plot accuracy against predicted probability."""
    found = result.calibration
    probability, accuracy = np.array(found["probability"]), np.array(found["accuracy"])

    axes = new_axes()
    axes.plot([0, 1], [0, 1], color=THIRD, linewidth=1.2, linestyle=":")
    axes.plot(probability, accuracy, color=FIRST, linewidth=2, marker="o", markersize=4)
    axes.set(xlabel="predicted probability", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))
    caption = (
        "Accuracy of predictions by their probability, in ten bins. The dotted line is perfect calibration. The mean "
        f"distance from it (expected calibration error) is {calibration_error(found):.3f}."
    )
    return Drawing("calibration", "Accuracy by predicted probability", caption, axes)


def weights_of_parts(learned: LearnedSummary) -> Drawing:
    """Plot the weights of the parts of scores."""
    parts = [part for part in learned.parts if part.name != "constant"]

    axes = new_axes()
    axes.barh([part.name for part in parts], [part.weight for part in parts], color=FIRST)
    axes.invert_yaxis()
    axes.set(xlabel="weight")
    return Drawing("weights", "Weights of the parts", "The weight of each part in the expected reward.", axes)


def _whole(value: float, _: int) -> str:
    return f"{value:,.0f}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
