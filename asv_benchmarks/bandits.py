"""Compare the policies of ``cmt_numba.bandits`` and measure their evaluation from logs."""

from shared.commands import DATA, Commands, argument, timed  # before libraries that read the number of threads

# isort: split
import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from shared.bandit_players import TASKS, Task, players_of
from shared.made_logs import SETS_OF_LOGS, World, logging_policies, rows_of_classes, world_of
from sklearn.svm import LinearSVC
from tabulate import tabulate

from cmt_numba import CMTClassifier
from cmt_numba.bandits import ArgmaxRegressor, LinUCB
from cmt_numba.bandits.evaluation import Log, estimate_rewards, evaluate

commands = Commands(__doc__)


@commands.add()
def mabwiser(options: argparse.Namespace, n_rows: int = 2000, n_single: int = 300) -> None:
    """Compare ``LinUCB`` with the LinUCB policy of MABWiser (https://github.com/fidelity/mabwiser) on the same rewards.

    For several numbers of arms and features, prints whether both make the same choices, and the CPU time to choose and
    to learn, row by row and in batches.
    """
    table = []
    for n_actions, n_features in ((3, 5), (10, 20), (20, 6), (100, 20), (100, 100)):
        same, ratios, micros = measure_mabwiser(n_actions, n_features, n_rows, n_single)
        pairs = [f"{ours:.1f} ({ratio:.1f}x)" for ours, ratio in zip(micros, ratios, strict=True)]
        table.append([n_actions, n_features, f"{same:.1%}", *pairs])
        print(table[-1], flush=True)
    headers = ["arms", "features", "same choices", "choose, row", "learn, row", "choose, batch", "learn, batch"]
    print(f"CPU time per row in us (MABWiser: multiple of our time); batches of {n_rows}")
    print(tabulate(table, headers=headers, disable_numparse=True, tablefmt="github"))


def measure_mabwiser(
    n_actions: int, n_features: int, n_rows: int, n_single: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the fraction of equal choices, the ratios of the times, and the microseconds per row of ``LinUCB``."""
    from mabwiser.mab import MAB, LearningPolicy

    rng = np.random.default_rng(0)
    X, asked = rng.normal(size=(2, n_rows, n_features))
    actions, rewards = rng.integers(0, n_actions, n_rows), (rng.random(n_rows) < 0.3).astype(float)
    theirs = MAB(list(range(n_actions)), LearningPolicy.LinUCB(alpha=0.7, l2_lambda=1.0))
    theirs.fit(actions, rewards, X)
    ours = LinUCB(n_actions, alpha=0.7, random_state=0).learn(X, actions, rewards)
    same = float(np.mean(np.array(theirs.predict(asked)) == ours.act(asked).actions))
    ours.learn(X[:1], actions[:1], rewards[:1])  # compile all kernels
    calls: list[tuple[int, Callable[[Any], Any], Callable[[Any], Any]]] = [
        (n_single, lambda i: theirs.predict(asked[[i]]), lambda i: ours.act(asked[[i]])),
        (
            n_single,
            lambda i: theirs.partial_fit(actions[[i]], rewards[[i]], X[[i]]),
            lambda i: ours.learn(X[[i]], actions[[i]], rewards[[i]]),
        ),
        (1, lambda i: theirs.predict(asked), lambda i: ours.act(asked)),
        (1, lambda i: theirs.partial_fit(actions, rewards, X), lambda i: ours.learn(X, actions, rewards)),
    ]
    taken = []
    for n_calls, *both in calls:
        times = np.zeros((5, 2))
        for repetition in range(5):
            for j, call in enumerate(both):
                start = time.process_time()
                for i in range(n_calls):
                    call(i)
                times[repetition, j] = time.process_time() - start
        taken.append(times.min(axis=0) / (n_rows if n_calls == 1 else n_calls) * 1e6)
    them, us = np.array(taken).T
    return same, them / us, us


def play(task: Task, player: Any, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return the rewards of all rounds, as fractions of the best expected rewards, and the microseconds per round."""
    n = task.X.shape[0]
    rewards, seconds, untimed = np.zeros(n), 0.0, 10 * task.batch  # the first rounds compile kernels
    for first in range(0, n, task.batch):
        span, start = slice(first, min(first + task.batch, n)), time.process_time()
        actions = player.choose(span)
        chosen = time.process_time()
        rewards[span] = task.rewards(span, actions, rng)
        rewarded = time.process_time()
        player.learn(rewards[span])
        if first >= untimed:
            seconds += chosen - start + time.process_time() - rewarded
    best = 1.0 if task.chances is None else task.chances.max(axis=1).mean()
    return rewards / best, seconds / max(1, n - untimed) * 1e6


@commands.add(
    DATA,
    argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK", help=", ".join(TASKS)),
    argument("--seeds", type=int, default=3, metavar="N"),
)
def compare(options: argparse.Namespace) -> None:
    """Compare ``CMTBandit`` with simple bandits and other libraries: few actions, actions with keys, and two spaces.

    Texts with few labels are played one at a time: the action is a label, and the reward is 1 if the label is correct.
    Actions with keys are played in batches of 100, in two passes over the same contexts. The keys are captions,
    summaries or verses. The contexts are other captions of the same image, half of the words of the summary, or a third
    of the words of another translation. In the synthetic tasks the reward is random, and its probability depends on a
    product of context and key.

    Prints the mean reward and its standard error over the seeds as a fraction of the best expected reward, the mean
    reward of each fifth of the rounds, and microseconds of CPU time per round. The defaults of ``CMTBandit`` were
    chosen on clinc150, wikipara1k and flickr8k. Vowpal Wabbit needs the extra ``peers``.
    """
    table = []
    for name in options.tasks:
        tasks = [TASKS[name](options.data, np.random.default_rng(seed)) for seed in range(options.seeds)]
        for player, make in players_of(tasks[0]).items():
            runs = [play(task, make(task, seed), np.random.default_rng(seed)) for seed, task in enumerate(tasks)]
            means = np.array([rewards.mean() for rewards, _ in runs])
            fifths = np.mean([[part.mean() for part in np.array_split(rewards, 5)] for rewards, _ in runs], axis=0)
            halves = np.mean([[part.mean() for part in np.array_split(rewards, 2)] for rewards, _ in runs], axis=0)
            error = means.std(ddof=1) / np.sqrt(means.size) if means.size > 1 else np.nan
            spans = " ".join(f"{value:.3f}" for value in fifths)
            if tasks[0].keys is not None and tasks[0].wanted is not None:
                first = np.mean([[p.mean() for p in np.array_split(r[: r.size // 2], 5)] for r, _ in runs], axis=0)
                spans = " ".join(f"{value:.3f}" for value in first) + f"; then {halves[1]:.3f}"
            cost = min(micros for _, micros in runs)
            table.append([name, player, f"{means.mean():.3f} ± {error:.3f}", spans, f"{cost:.0f}"])
            print(table[-1], flush=True)
    headers = ["task", "policy", "mean reward", "mean reward per fifth (with keys: per pass)", "us/round"]
    print(tabulate(table, headers=headers, disable_numparse=True, tablefmt="github"))


CAMPAIGNS = ("all", "men", "women")
TAU, THRESHOLD = 0.02, 3.0


def read_open_bandit(folder: Path, behaviour: str, campaign: str) -> Any:
    """Return the rows of an Open Bandit log."""
    import pandas

    return pandas.read_csv(folder / "openbandit" / behaviour / campaign / f"{campaign}.csv.gz", index_col=0)


def log_of(frame: Any, n_actions: int) -> Log:
    """Return a log whose contexts are indicators of the position and of the user's features."""
    import pandas

    users = pandas.get_dummies(frame[[name for name in frame.columns if name.startswith("user_feature")]])
    contexts = np.column_stack([pandas.get_dummies(frame["position"]), users]).astype(float)
    return Log(
        frame["item_id"].to_numpy(),
        frame["click"].to_numpy(),
        contexts,
        frame["propensity_score"].to_numpy(),
        allowed=np.arange(n_actions),
    )


def by_obp(log: Log, probabilities: np.ndarray, expected: np.ndarray, tau: float) -> dict[str, float]:
    """Return the estimates of the Open Bandit Pipeline."""
    from obp import ope

    common: dict[str, Any] = {
        "reward": log.rewards,
        "action": log.actions,
        "pscore": np.maximum(log.propensities, tau),
        "action_dist": probabilities[:, :, None],
        "position": np.zeros(len(log), int),
    }
    model = {"estimated_rewards_by_reg_model": expected[:, :, None]}
    return {
        "ips": ope.InverseProbabilityWeighting().estimate_policy_value(**common),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**common),
        "dm": ope.DirectMethod().estimate_policy_value(**common, **model),
        "dr": ope.DoublyRobust().estimate_policy_value(**common, **model),
        "sndr": ope.SelfNormalizedDoublyRobust().estimate_policy_value(**common, **model),
        "switch": _switch().estimate_policy_value(**(common | {"pscore": log.propensities}), **model),
    }


def _switch() -> Any:
    """Return the switch estimator; versions of ``obp`` differ in the name of its threshold."""
    from obp import ope

    try:
        return ope.SwitchDoublyRobust(lambda_=THRESHOLD)
    except TypeError:
        return ope.SwitchDoublyRobust(tau=THRESHOLD)


def policies_to_judge(frame: Any, other: Any, n_actions: int) -> dict[str, np.ndarray]:
    """Return the probabilities of the policies to evaluate."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(len(frame), n_actions))
    softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    counts = np.ones((4, n_actions))
    np.add.at(counts, (other["position"].to_numpy(), other["item_id"].to_numpy()), 1)
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    return {"softmax": softmax, "other log": frequencies[frame["position"].to_numpy()]}


@commands.add(DATA)
def estimators(options: argparse.Namespace) -> None:
    """Compare ``cmt_numba.bandits.evaluation`` with the Open Bandit Pipeline on the Open Bandit Dataset.

    The folder holds ``openbandit/{random,bts}/{all,men,women}/*.csv.gz``: the sample of the dataset that comes with the
    package ``obp`` (https://github.com/st-tech/zr-obp). ``obp`` and PyTorch must be installed. For each log, two
    policies are evaluated that differ from the logging policy: a random softmax for each context, and the action
    frequencies of the other log by position. Prints the value by each estimator and the largest difference between the
    libraries. Fails if that difference is above 1e-9.
    """
    table, worst = [], 0.0
    for behaviour, others in (("random", "bts"), ("bts", "random")):
        for campaign in CAMPAIGNS:
            frame, other = (
                read_open_bandit(options.data, behaviour, campaign),
                read_open_bandit(options.data, others, campaign),
            )
            n_actions = 1 + int(max(frame["item_id"].max(), other["item_id"].max()))
            log = log_of(frame, n_actions)
            expected = np.clip(estimate_rewards(log), 0.0, 1.0)
            for name, probabilities in policies_to_judge(frame, other, n_actions).items():
                for tau in (0.0, TAU):
                    ours = evaluate(probabilities, log, expected=expected, tau=tau, threshold=THRESHOLD)
                    theirs = by_obp(log, probabilities, expected, tau)
                    values = {key: estimate.value for key, estimate in ours.estimates.items()}
                    worst = max(worst, *(abs(values[key] - theirs[key]) for key in values))
                    table.append([f"{behaviour}/{campaign}", name, tau, *(f"{value:.6f}" for value in values.values())])
    print(tabulate(table, headers=["log", "policy", "tau", "ips", "snips", "dm", "dr", "sndr", "switch"]))
    print(f"largest difference: {worst:.2e}")
    if worst > 1e-9:
        raise SystemExit("the estimators differ")


@commands.add(DATA, argument("--seeds", type=int, default=3, metavar="N"), argument("--classes", type=int, default=77))
def logs(options: argparse.Namespace) -> None:
    """Compare policies learned from logs by their accuracy on held-out rows.

    Classes are actions, and the reward is 1 for the correct class. A fifth of the rows is held out. Five logging
    policies choose actions for the other rows: uniform, a weak classifier with epsilon-greedy or softmax exploration, a
    good classifier with exploration, and one that avoids what the weak classifier prefers. The rivals are the argmax of
    the logging policy, one ridge regression per action with and without importance weights, and ``LinearSVC`` and
    ``CMTClassifier`` on the rewarded rows. Prints accuracies averaged over the seeds, with standard errors, and the CPU
    time of a fit.
    """
    table = []
    for name in SETS_OF_LOGS:
        found: dict[str, list[dict[str, float]]] = {}
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            X, y = rows_of_classes(options.data, name, options.classes, rng)
            n = y.size * 4 // 5
            for policy, P in logging_policies(X, y, n).items():
                actions = (rng.random(n)[:, None] > P[:n].cumsum(axis=1)).sum(axis=1).clip(max=P.shape[1] - 1)
                propensities, rewards = P[np.arange(n), actions], (actions == y[:n]).astype(float)
                log = Log(actions, rewards, X[:n], propensities, np.arange(P.shape[1]))
                good = np.flatnonzero(rewards)
                chosen = {"argmax of the log": P[n:].argmax(axis=1)}
                learned, seconds = timed(ArgmaxRegressor(random_state=0).fit, log)
                chosen["ArgmaxRegressor"] = learned.act(X[n:]).actions
                for label, tau in (("ridges", 1.0), ("ridges, weighted", 0.01)):
                    ridges = ArgmaxRegressor(method="regression", tau=tau, random_state=0).fit(log)
                    chosen[label] = ridges.act(X[n:]).actions
                for classifier in (LinearSVC(), CMTClassifier(random_state=0)):
                    label = type(classifier).__name__
                    chosen[label] = classifier.fit(X[good], actions[good]).predict(X[n:])
                right = {label: float(np.mean(own == y[n:])) for label, own in chosen.items()}
                found.setdefault(policy, []).append(right | {"s": seconds})
        for policy, runs in found.items():
            columns = {label: np.array([run[label] for run in runs]) for label in runs[0]}
            seconds = columns.pop("s").mean()
            cells = [f"{v.mean():.3f} ± {v.std(ddof=1) / np.sqrt(v.size):.3f}" for v in columns.values()]
            table.append([name, policy, *cells, f"{seconds:.1f}"])
            print(table[-1], flush=True)
    print(tabulate(table, headers=["set", "log", *columns, "fit, s"], disable_numparse=True, tablefmt="github"))


KINDS_OF_LOGS = (*SETS_OF_LOGS, "many actions")
CLIPPED, METHODS = 0.05, ("betting", "bernstein", "chernoff", "bootstrap", "normal")


def measure_coverage(world: World, n_logs: int, n_rows: int) -> dict[tuple[str, str], list[tuple[float, float, float]]]:
    """Return the estimates of all logs with their intervals, by estimator and kind of interval."""
    rng, found = np.random.default_rng(0), {}
    for _ in range(n_logs):
        rows = rng.integers(0, len(world.target), n_rows)
        logging, target = world.logging[rows], world.target[rows]
        actions = (rng.random(n_rows)[:, None] > logging.cumsum(axis=1)).sum(axis=1).clip(max=target.shape[1] - 1)
        rewards = (rng.random(n_rows) < world.rewards[rows, actions]).astype(float)
        propensities = logging[np.arange(n_rows), actions]
        log = Log(actions, rewards, world.X[rows], propensities, np.arange(target.shape[1]))
        expected = np.clip(estimate_rewards(log), 0.0, 1.0)
        estimates = dict(evaluate(target, log, expected=expected).estimates)
        estimates["switch, 10"] = evaluate(target, log, expected=expected, threshold=10.0).estimates["switch"]
        clipped = evaluate(target, log, expected=expected, tau=CLIPPED).estimates
        estimates |= {f"{name}, tau": clipped[name] for name in ("ips", "dr")}
        for name, estimate in estimates.items():
            for method in METHODS:
                if estimate.has_interval(method):
                    interval = estimate.interval(method, n_resamples=200)
                    found.setdefault((name, method), []).append((estimate.value, *interval))
    return found


@commands.add(
    DATA,
    argument("--logs", type=int, default=500, metavar="N"),
    argument("--rows", type=int, default=1000, metavar="N"),
    argument("--kinds", nargs="+", choices=KINDS_OF_LOGS, default=list(KINDS_OF_LOGS)),
)
def coverage(options: argparse.Namespace) -> None:
    """Measure errors and interval coverage of off-policy estimators on logs whose policy values are known.

    Classification becomes a bandit problem: the action is a class, and the reward is 1 for the correct class, so the
    value of every policy is known. Three data sets are used, with 30 classes each, as dense vectors of 24 components:
    clinc150 (intents of requests), wikipara1k (articles of paragraphs) and Omniglot (characters of images). Many logs
    are made from each. Rows are drawn with replacement, and actions are drawn from a mixture of a weak classifier and
    the uniform policy. The policy to evaluate is a better classifier. A fourth data set has 200 actions and rare random
    rewards.

    Prints the bias and the root mean squared error of each estimator over all logs. For each kind of 95 % interval,
    prints the fraction that contained the true value, and the mean width.
    """
    for kind in options.kinds:
        world = world_of(options.data, kind)
        value = float((world.target * world.rewards).sum(axis=1).mean())
        table: dict[str, list[str]] = {}
        for (name, method), cells in measure_coverage(world, options.logs, options.rows).items():
            values, low, high = np.array(cells).T
            errors = values - value
            row = table.setdefault(name, [f"{errors.mean():+.4f}", f"{np.sqrt(np.mean(errors**2)):.4f}"])
            row += [""] * (METHODS.index(method) + 2 - len(row))
            row.append(f"{np.mean((low <= value) & (value <= high)):.0%}, {np.mean(high - low):.2f}")
        print(f"{kind}: value {value:.4f}, {options.logs} logs of {options.rows:,} rows")
        rows = [[name, *cells] for name, cells in table.items()]
        print(tabulate(rows, headers=["estimator", "bias", "rmse", *METHODS], disable_numparse=True, tablefmt="github"))
        print(flush=True)


main = commands.main

if __name__ == "__main__":
    main()
