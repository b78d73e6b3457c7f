"""The command group ``cmt-numba bandit``."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument

from . import _options as given
from ._options import option, with_options
from ._output import check_files, write_result

if TYPE_CHECKING:
    from ..bandits import ArgmaxRegressor, Policy
    from ..bandits.evaluation import Log

Estimation = StrEnum("Estimation", "ridge logistic classifier frequency")  # methods of estimating propensities
Interval = StrEnum("Interval", "betting bernstein chernoff bootstrap normal")

_column = partial(option, metavar="COLUMN", rich_help_panel="Columns of the log")

app = typer.Typer(rich_markup_mode="markdown", help="Evaluate bandit policies from logs.")


@dataclass(frozen=True, kw_only=True)
class BanditOptions:
    """Options of ``cmt-numba bandit evaluate``."""

    policy: str = option(
        "Policy file, or the name of a policy to train on the first rows: random, epsilon-greedy, ucb1, linucb, "
        "thompson or squarecb.",
        "FILE|NAME",
        MISSING,
    )
    action: str = _column("", default="action")
    reward: str = _column("", default="reward")
    propensity: str | None = _column("Column with the propensities (default: estimate them).")
    context: list[str] | None = _column(
        "Numeric column of the context. May be repeated. Or a single column with lists of numbers."
    )
    allowed: str | None = _column("Column with lists of the allowed actions.")
    estimate: Estimation = option(
        "Method of estimating propensities that were not logged.", default=Estimation.frequency
    )
    tau: float = option("Minimum propensity; smaller ones are raised to it.", default=0.0)
    threshold: float = option("Maximum weight in the switch estimator.", default=10.0)
    train: float = option("Fraction of rows on which to train a named policy.", "SHARE", 0.5)
    interval: Interval = option("Kind of confidence interval.", default=Interval.bootstrap)
    confidence: float = option("Confidence level of the intervals.", "P", 0.95)
    least: float = option("Smallest possible reward.", default=0.0)
    largest: float = option("Largest possible reward.", default=1.0)
    seed: int = given.seed_option
    json: Path | None = given.json_option
    report: Path | None = given.report_option


@app.callback()
def commands() -> None:
    """Evaluate bandit policies from logs."""


@app.command()
@with_options
def evaluate(
    ctx: typer.Context,
    log: Annotated[Path, Argument(metavar="LOG", help="Log file: .parquet, .csv or .jsonl, or one of them with .gz.")],
    options: BanditOptions,
) -> None:
    """Estimate the mean reward of a policy from the log of another policy.

    ```sh
    cmt-numba bandit evaluate log.parquet --policy linucb --propensity p --context age --context hour
    cmt-numba bandit evaluate log.csv --policy my.cmt --propensity p --context age --tau 0.01 --report result.html
    ```
    """
    from ..bandits.evaluation import estimate_propensities, estimate_rewards, read_log
    from ..bandits.evaluation import evaluate as estimate
    from ..report import bandit_tables, intervals_of, write_bandit_report

    check_files(inputs=(log, Path(options.policy)), outputs=(options.report, options.json))
    columns = {name: getattr(options, name) for name in ("action", "reward", "propensity", "allowed", "context")}
    try:
        whole = read_log(log, **{name: column for name, column in columns.items() if column or name != "context"})
    except KeyError as error:
        raise ValueError(f"{log}: {error.args[0]}") from error
    lowest, highest = whole.rewards.min(), whole.rewards.max()
    if not options.least <= lowest <= highest <= options.largest:
        raise ValueError(f"{log}: rewards must be from --least to --largest, got rewards from {lowest} to {highest}")
    judged, tested = _policy_and_rows(options, whole)
    result = estimate(
        judged,
        tested,
        propensities=None if options.propensity else estimate_propensities(tested, options.estimate.value),
        expected=None if tested.contexts is None else estimate_rewards(tested),
        tau=options.tau,
        threshold=options.threshold,
        reward_range=(options.least, options.largest),
    )
    interval: dict[str, Any] = {"confidence": options.confidence, "random_state": options.seed}
    rows = intervals_of(result, options.interval.value, **interval)
    if options.report is not None:
        interval |= {"interval": options.interval.value, "title": f"{options.policy}: {log.name}"}
        write_bandit_report(options.report, result, command=given.command_line(ctx), **interval)
    summary = {
        "log": str(log),
        "policy": options.policy,
        "rows": result.n_rows,
        "mean reward of the log": result.logged,
        "effective sample size": result.effective_sample_size,
        "mean weight": result.mean_weight,
        "estimates": rows,
        "advice": result.advice,
    }
    write_result(summary, bandit_tables(result, rows), options.json)


def _policy_and_rows(options: BanditOptions, log: Log) -> tuple[Policy | ArgmaxRegressor, Log]:
    from .._validation import check_real
    from ..bandits import UCB1, EpsilonGreedy, LinearThompson, LinUCB, SquareCB, load_policy

    named: dict[str, Any] = {
        "random": partial(EpsilonGreedy, epsilon=1.0),
        "epsilon-greedy": EpsilonGreedy,
        "ucb1": UCB1,
        "linucb": LinUCB,
        "thompson": LinearThompson,
        "squarecb": SquareCB,
    }
    policy = options.policy
    if policy not in named:
        if not Path(policy).exists():
            raise ValueError(f"--policy must be a file or one of {', '.join(named)}, got {policy!r}")
        return load_policy(policy), log
    n_train = int(check_real("--train", options.train, 0.0, 1.0) * len(log))
    if not 0 < n_train < len(log):
        raise ValueError(f"--train must select some but not all of the {len(log)} rows, got {n_train}")
    learned = named[policy](random_state=options.seed)
    if log.contexts is None and learned._is_contextual:
        raise ValueError(f"--policy {policy} requires --context; name the columns of the context")
    first, second = log.take(slice(0, n_train)), log.take(slice(n_train, None))
    contexts = [[0.0]] * n_train if log.contexts is None else first.contexts
    learned.learn(contexts, first.actions, first.rewards)
    return learned, second
