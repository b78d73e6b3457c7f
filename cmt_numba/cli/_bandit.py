"""The command group ``cmt-numba bandit``."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import _options as given
from ._options import Options, argument, choice, column, command, number, option
from ._output import check_files, write_result

if TYPE_CHECKING:
    from ..bandits import ArgmaxRegressor, Policy
    from ..bandits.evaluation import Log

POLICIES = ("random", "epsilon-greedy", "ucb1", "linucb", "thompson", "squarecb")
ESTIMATES = ("ridge", "logistic", "classifier", "frequency")
INTERVALS = ("betting", "bernstein", "chernoff", "bootstrap", "normal")


@click.group(no_args_is_help=False)
def bandit() -> None:
    """Evaluate bandit policies from logs."""


@command(
    bandit,
    argument("log", metavar="LOG"),
    option(
        "--policy",
        f"Policy file, or a policy to train on the first rows: {', '.join(POLICIES)}.",
        "FILE|NAME",
        required=True,
    ),
    column("--action", "Column with the actions.", default="action"),
    column("--reward", "Column with the rewards.", default="reward"),
    column("--propensity", "Column with the propensities (default: estimate them)."),
    column("--context", "Column of the context, with numbers or lists of numbers. May be repeated.", multiple=True),
    column("--allowed", "Column with lists of the allowed actions."),
    choice("--estimate", "Method of estimating propensities that were not logged.", ESTIMATES, default=ESTIMATES[-1]),
    number("--tau", "Minimum propensity; smaller ones are raised to it.", default=0.0),
    number("--threshold", "Maximum weight in the switch estimator.", default=10.0),
    number("--train", "Fraction of rows on which to train a named policy.", "SHARE", default=0.5),
    choice("--interval", "Kind of confidence interval.", INTERVALS, default="bootstrap"),
    number("--confidence", "Confidence level of the intervals.", "P", default=0.95),
    number("--least", "Smallest possible reward.", default=0.0),
    number("--largest", "Largest possible reward.", default=1.0),
    given.SEED,
    given.JSON,
    given.REPORT,
)
def evaluate(options: Options) -> None:
    """Estimate the mean reward of a policy from the log of another policy.

    LOG is a .parquet, .csv or .jsonl file, or one of them with .gz.

    ```sh
    cmt-numba bandit evaluate log.parquet --policy linucb --propensity p --context age --context hour
    cmt-numba bandit evaluate log.csv --policy my.cmt --propensity p --context age --tau 0.01 --report result.html
    ```
    """
    from ..bandits.evaluation import estimate_propensities, estimate_rewards
    from ..bandits.evaluation import evaluate as estimate
    from ..report import bandit_tables, intervals_of, write_bandit_report

    check_files(inputs=(options.log, Path(options.policy)), outputs=(options.report, options.json))
    policy, tested = _policy_and_rows(options, _read(options))
    result = estimate(
        policy,
        tested,
        propensities=None if options.propensity else estimate_propensities(tested, options.estimate),
        expected=None if tested.contexts is None else estimate_rewards(tested),
        tau=options.tau,
        threshold=options.threshold,
        reward_range=(options.least, options.largest),
    )
    interval: dict[str, Any] = {"confidence": options.confidence, "random_state": options.seed}
    rows = intervals_of(result, options.interval, **interval)
    if options.report is not None:
        interval |= {"interval": options.interval, "title": f"{options.policy}: {options.log.name}"}
        write_bandit_report(options.report, result, command=given.command_line(), **interval)
    summary = {
        "log": str(options.log),
        "policy": options.policy,
        "rows": result.n_rows,
        "mean reward of the log": result.logged,
        "effective sample size": result.effective_sample_size,
        "mean weight": result.mean_weight,
        "estimates": rows,
        "advice": result.advice,
    }
    write_result(summary, bandit_tables(result, rows), options.json)


def _read(options: Options) -> "Log":
    from ..bandits.evaluation import read_log

    names = {name: getattr(options, name) for name in ("action", "reward", "propensity", "allowed")}
    if options.context:
        names["context"] = list(options.context)
    try:
        log = read_log(options.log, **names)
    except KeyError as error:
        raise ValueError(f"{options.log}: {error.args[0]}") from error
    lowest, highest = log.rewards.min(), log.rewards.max()
    if not options.least <= lowest <= highest <= options.largest:
        limits = "rewards must be from --least to --largest"
        raise ValueError(f"{options.log}: {limits}, got rewards from {lowest} to {highest}")
    return log


def _policy_and_rows(options: Options, log: "Log") -> "tuple[Policy | ArgmaxRegressor, Log]":
    """Return a saved policy and all rows, or a policy that is trained on the first rows, and the other rows."""
    from .._validation import check_real
    from ..bandits import UCB1, EpsilonGreedy, LinearThompson, LinUCB, SquareCB, load_policy

    if options.policy not in POLICIES:
        if not Path(options.policy).exists():
            raise ValueError(f"--policy must be a file or one of {', '.join(POLICIES)}, got {options.policy!r}")
        return load_policy(options.policy), log
    n_train = int(check_real("--train", options.train, 0.0, 1.0) * len(log))
    if not 0 < n_train < len(log):
        raise ValueError(f"--train must select some but not all of the {len(log)} rows, got {n_train}")
    kinds = (partial(EpsilonGreedy, epsilon=1.0), EpsilonGreedy, UCB1, LinUCB, LinearThompson, SquareCB)
    learned: Any = kinds[POLICIES.index(options.policy)](random_state=options.seed)
    if log.contexts is None and learned._is_contextual:
        raise ValueError(f"--policy {options.policy} requires --context; name the columns of the context")
    first, second = log.take(slice(0, n_train)), log.take(slice(n_train, None))
    contexts = [[0.0]] * n_train if log.contexts is None else first.contexts
    learned.learn(contexts, first.actions, first.rewards)
    return learned, second
