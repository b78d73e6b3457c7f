"""Compare the policies of ``cmt_numba.bandits`` and measure their evaluation from logs."""

from shared.commands import DATA, Commands, argument, print_table

import argparse
import time
from typing import Any

import numpy as np
from shared.bandit_players import TASKS, Task, players_of
from shared.made_logs import SETS_OF_LOGS, World, logging_policies, rows_of_classes, world_of
from sklearn.svm import LinearSVC

from cmt_numba import CMTClassifier
from cmt_numba.bandits import ArgmaxRegressor
from cmt_numba.bandits.evaluation import Log, estimate_rewards, evaluate

commands = Commands(__doc__)


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
    print_table(headers, table)


@commands.add(DATA, argument("--seeds", type=int, default=3, metavar="N"), argument("--classes", type=int, default=77))
def logs(options: argparse.Namespace) -> None:
    """Compare policies learned from logs by their accuracy on held-out rows.

    Classes are actions, and the reward is 1 for the correct class. A fifth of the rows is held out. Three logging
    policies choose actions for the other rows: a weak classifier with epsilon-greedy exploration, a good classifier
    with exploration, and one that avoids what the weak classifier prefers. The rivals are the argmax of the logging
    policy, one ridge regression per action, and ``LinearSVC`` and ``CMTClassifier`` on the rewarded rows. Prints
    accuracies averaged over the seeds.
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
                chosen["ArgmaxRegressor"] = ArgmaxRegressor(random_state=0).fit(log).act(X[n:]).actions
                ridges = ArgmaxRegressor(method="regression", tau=1.0, random_state=0).fit(log)
                chosen["ridges"] = ridges.act(X[n:]).actions
                for classifier in (LinearSVC(), CMTClassifier(random_state=0)):
                    label = type(classifier).__name__
                    chosen[label] = classifier.fit(X[good], actions[good]).predict(X[n:])
                found.setdefault(policy, []).append({by: float(np.mean(own == y[n:])) for by, own in chosen.items()})
        for policy, runs in found.items():
            table.append([name, policy, *(float(np.mean([run[by] for run in runs])) for by in runs[0])])
            print(table[-1], flush=True)
    print_table(["set", "log", *runs[0]], table)


KINDS_OF_LOGS = (*SETS_OF_LOGS, "many actions")
CLIPPED, METHODS = 0.05, ("normal", "betting")


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
        clipped = evaluate(target, log, expected=expected, tau=CLIPPED).estimates
        estimates |= {f"{name}, tau": clipped[name] for name in ("ips", "dr")}
        for name, estimate in estimates.items():
            for method in METHODS:
                if estimate.has_interval(method):
                    found.setdefault((name, method), []).append((estimate.value, *estimate.interval(method)))
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

    Prints the root mean squared error of each estimator over all logs. For each kind of 95 % interval, prints the
    fraction that contained the true value, and the mean width.
    """
    for kind in options.kinds:
        world = world_of(options.data, kind)
        value = float((world.target * world.rewards).sum(axis=1).mean())
        table: dict[str, list[str]] = {}
        for (name, method), cells in measure_coverage(world, options.logs, options.rows).items():
            values, low, high = np.array(cells).T
            row = table.setdefault(name, [f"{np.sqrt(np.mean((values - value) ** 2)):.4f}"])
            row += [""] * (METHODS.index(method) + 1 - len(row))
            row.append(f"{np.mean((low <= value) & (value <= high)):.0%}, {np.mean(high - low):.2f}")
        title = f"{kind}: value {value:.4f}, {options.logs} logs of {options.rows:,} rows"
        print_table(["estimator", "rmse", *METHODS], [[name, *cells] for name, cells in table.items()], title)


if __name__ == "__main__":
    commands.main()
