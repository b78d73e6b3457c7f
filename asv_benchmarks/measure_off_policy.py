"""Measure bias and interval coverage of off-policy estimators on logs whose value is known.

    python asv_benchmarks/measure_off_policy.py --data path/to/folder --plot coverage.png

Classification becomes a bandit: the action is a class, and the reward is 1 if it is the right one, so that the value of
every policy is known. From clinc150 (intents of requests), wikipara1k (articles of paragraphs) and Omniglot (characters
of images), 30 classes each, as dense vectors of 24 components, many logs are made: rows are drawn with replacement, and
actions by a policy that is a mixture of a weak classifier and uniform choice. The policy to evaluate is a better
classifier. Prints for each estimator the bias and the root mean squared error over all logs, and how many of the 95 %
intervals held the value; with ``--plot`` a figure of the estimates.
"""

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from tabulate import tabulate

from cmt_numba.bandits.evaluation import Log, estimate_rewards, evaluate

N_CLASSES, N_COMPONENTS = 30, 24
TAU, THRESHOLD = 0.05, 10.0
METHODS = ("bernstein", "chernoff", "bootstrap", "normal")


def read_texts(path: Path) -> tuple[list[str], np.ndarray]:
    """Return texts and the names of their classes."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [row["text"] for row in rows], np.array([row["label"] for row in rows])


def read(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of the rows of some classes, and their classes."""
    if name == "omniglot":
        with np.load(folder / "omniglot_background" / "hog.npz") as arrays:
            X, y = arrays["X"].astype(np.float64), arrays["y"]
    else:
        X, y = read_texts(folder / name / "train.jsonl.gz")
    labels, counts = np.unique(y, return_counts=True)
    kept = np.isin(y, labels[np.argsort(-counts, kind="stable")[:N_CLASSES]])
    if name != "omniglot":
        X = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform([X[i] for i in np.flatnonzero(kept)])
    else:
        X = X[kept]
    components = TruncatedSVD(N_COMPONENTS, random_state=0).fit_transform(X)
    return normalize(components), np.unique(y[kept], return_inverse=True)[1]


def softmax(model: LogisticRegression, X: np.ndarray, uniform: float) -> np.ndarray:
    """Return the probabilities of a classifier, mixed with the uniform ones."""
    probabilities: np.ndarray = (1 - uniform) * model.predict_proba(X) + uniform / N_CLASSES
    return probabilities


def measure(X: np.ndarray, y: np.ndarray, n_logs: int, n_rows: int) -> tuple[float, dict[str, np.ndarray], dict]:
    """Return the value, the estimates of all logs by estimator, and whether intervals held the value."""
    rng = np.random.default_rng(0)
    order = rng.permutation(y.size)
    few = np.concatenate([order[y[order] == c][:2] for c in range(N_CLASSES)])
    many = np.concatenate([order[y[order] == c][:8] for c in range(N_CLASSES)])
    logging = softmax(LogisticRegression(C=3.0, max_iter=500).fit(X[few], y[few]), X, 0.3)
    target = softmax(LogisticRegression(C=30.0, max_iter=500).fit(X[many], y[many]), X, 0.05)
    value = float(target[np.arange(y.size), y].mean())
    estimates: dict[str, list[float]] = {}
    held: dict[tuple[str, str], list[bool]] = {}
    for _ in range(n_logs):
        rows = rng.integers(0, y.size, n_rows)
        ends = logging[rows].cumsum(axis=1)
        actions = np.minimum((rng.random(n_rows)[:, None] > ends).sum(axis=1), N_CLASSES - 1)
        propensities = logging[rows, actions]
        log = Log(actions, (actions == y[rows]).astype(float), X[rows], propensities, np.arange(N_CLASSES))
        expected = np.clip(estimate_rewards(log), 0.0, 1.0)
        found = dict(evaluate(target[rows], log, expected=expected, threshold=THRESHOLD).estimates)
        clipped = evaluate(target[rows], log, expected=expected, tau=TAU).estimates
        found |= {f"{name}, tau": clipped[name] for name in ("ips", "dr")}
        for name, estimate in found.items():
            estimates.setdefault(name, []).append(estimate.value)
            for method in METHODS:
                if estimate.bounds is None and method in ("bernstein", "chernoff"):
                    continue
                low, high = estimate.interval(method, n_resamples=200)
                held.setdefault((name, method), []).append(low <= value <= high)
    return value, {name: np.array(values) for name, values in estimates.items()}, held


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--logs", type=int, default=200, metavar="N")
    parser.add_argument("--rows", type=int, default=1000, metavar="N")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    found = {}
    for name in ("clinc150", "wikipara1k", "omniglot"):
        X, y = read(arguments.data, name)
        value, estimates, held = found[name] = measure(X, y, arguments.logs, arguments.rows)
        table = []
        for estimator, values in estimates.items():
            errors = values - value
            shares = [
                f"{np.mean(held[estimator, method]):.0%}" if (estimator, method) in held else "" for method in METHODS
            ]
            table.append(
                [
                    estimator,
                    f"{errors.mean():+.4f}",
                    f"{np.sqrt(np.mean(errors**2)):.4f}",
                    f"{values.std():.4f}",
                    *shares,
                ]
            )
        print(f"{name}: value {value:.4f}, {arguments.logs} logs of {arguments.rows:,} rows")
        print(tabulate(table, headers=["estimator", "bias", "rmse", "std", *METHODS], disable_numparse=True), "\n")
    if arguments.plot is not None:
        plot(arguments.plot, found)


def plot(path: Path, found: dict) -> None:
    """Draw the estimates of all logs beside the value."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    for axes, (name, (value, estimates, _)) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        axes.boxplot(list(estimates.values()), tick_labels=list(estimates), showfliers=False)
        axes.axhline(value, color="black", linestyle="dashed", linewidth=1)
        axes.set_title(f"{name}: value {value:.3f}")
        axes.tick_params(axis="x", rotation=60)
    figure.savefig(path)


if __name__ == "__main__":
    main()
