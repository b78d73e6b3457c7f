"""The command group ``cmt-numba bandit``."""

from __future__ import annotations

import shlex
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument

from .._version import __version__
from . import _options as given
from ._options import option

if TYPE_CHECKING:
    from ..bandits import ArgmaxRegressor, Policy
    from ..bandits.evaluation import Log

Estimation = StrEnum("Estimation", "ridge logistic classifier frequency")  # methods of estimating propensities
Interval = StrEnum("Interval", "betting bernstein chernoff bootstrap normal")

_column = partial(option, rich_help_panel="Columns of the log")

app = typer.Typer(rich_markup_mode="markdown", help="Evaluate bandit policies from logs.")


@app.callback()
def commands() -> None:
    """Evaluate bandit policies from logs."""


@app.command()
def evaluate(
    ctx: typer.Context,
    log: Annotated[Path, Argument(metavar="LOG", help="Log file: .parquet, .csv or .jsonl, or one of them with .gz.")],
    policy: Annotated[
        str,
        option(
            "--policy",
            "Policy file, or the name of a policy to train on the first rows: random, epsilon-greedy, ucb1, "
            "linucb, thompson or squarecb.",
            "FILE|NAME",
        ),
    ],
    action: Annotated[str, _column("--action", "", "COLUMN")] = "action",
    reward: Annotated[str, _column("--reward", "", "COLUMN")] = "reward",
    propensity: Annotated[
        str | None, _column("--propensity", "Column with the propensities (default: estimate them).", "COLUMN")
    ] = None,
    context: Annotated[
        list[str] | None,
        _column(
            "--context",
            "Numeric column of the context. May be repeated. Or a single column with lists of numbers.",
            "COLUMN",
        ),
    ] = None,
    allowed: Annotated[str | None, _column("--allowed", "Column with lists of the allowed actions.", "COLUMN")] = None,
    estimation: Annotated[
        Estimation, option("--estimate", "Method of estimating propensities that were not logged.")
    ] = Estimation.frequency,
    tau: Annotated[float, option("--tau", "Minimum propensity; smaller ones are raised to it.")] = 0.0,
    threshold: Annotated[float, option("--threshold", "Maximum weight in the switch estimator.")] = 10.0,
    train: Annotated[float, option("--train", "Fraction of rows on which to train a named policy.", "SHARE")] = 0.5,
    interval: Annotated[Interval, option("--interval", "Kind of confidence interval.")] = Interval.bootstrap,
    confidence: Annotated[float, option("--confidence", "Confidence level of the intervals.", "P")] = 0.95,
    least: Annotated[float, option("--least", "Smallest possible reward.")] = 0.0,
    largest: Annotated[float, option("--largest", "Largest possible reward.")] = 1.0,
    seed: given.Seed = 0,
    json_file: given.JsonFile = None,
    report: given.ReportFile = None,
) -> None:
    """Estimate the mean reward of a policy from the log of another policy.

    ```sh
    cmt-numba bandit evaluate log.parquet --policy linucb --propensity p --context age --context hour
    cmt-numba bandit evaluate log.csv --policy my.cmt --propensity p --context age --tau 0.01 --report result.html
    ```
    """
    from rich.console import Console

    from ..bandits.evaluation import estimate_propensities, estimate_rewards, read_log
    from ..bandits.evaluation import evaluate as estimate
    from ..evaluation import to_json
    from ..report import bandit_tables, intervals_of, write_bandit_report
    from ._outputs import check_files, open_output, to_json_text
    from ._tables import show_table

    check_files(inputs=(log, Path(policy)), outputs=(report, json_file))
    columns: dict[str, Any] = {"action": action, "reward": reward, "propensity": propensity, "allowed": allowed}
    if context:
        columns["context"] = context
    try:
        whole = read_log(log, **columns)
    except KeyError as error:
        raise ValueError(f"{log}: {error.args[0]}") from error
    lowest, highest = whole.rewards.min(), whole.rewards.max()
    if not least <= lowest <= highest <= largest:
        raise ValueError(f"{log}: rewards must be from --least to --largest, got rewards from {lowest} to {highest}")
    judged, tested = _policy_and_rows(policy, whole, train, seed)
    propensities = None if propensity else estimate_propensities(tested, estimation.value)
    expected = None if tested.contexts is None else estimate_rewards(tested)
    result = estimate(
        judged,
        tested,
        propensities=propensities,
        expected=expected,
        tau=tau,
        threshold=threshold,
        reward_range=(least, largest),
    )
    rows = intervals_of(result, interval.value, confidence, seed)
    summary = {
        "rows": result.n_rows,
        "mean reward of the log": result.logged,
        "effective sample size": result.effective_sample_size,
        "mean weight": result.mean_weight,
    }
    if report is not None:
        write_bandit_report(
            report,
            result,
            interval=interval.value,
            confidence=confidence,
            title=f"{policy}: {log.name}",
            command=shlex.join(["cmt-numba", *ctx.meta[given.WORDS]]),
            random_state=seed,
        )
    if json_file is not None:
        contents = {"log": str(log), "policy": policy, "version": __version__, **summary, "estimates": rows}
        with open_output(json_file) as file:
            file.write(to_json_text(to_json({**contents, "advice": result.advice}), indent=2) + "\n")
    if json_file != Path("-"):
        for table in bandit_tables(result, rows):
            show_table(Console(), table)


def _policy_and_rows(policy: str, log: Log, train: float, seed: int) -> tuple[Policy | ArgmaxRegressor, Log]:
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
    if policy not in named:
        if not Path(policy).exists():
            raise ValueError(f"--policy must be a file or one of {', '.join(named)}, got {policy!r}")
        return load_policy(policy), log
    n_train = int(check_real("--train", train, 0.0, 1.0) * len(log))
    if not 0 < n_train < len(log):
        raise ValueError(f"--train must select some but not all of the {len(log)} rows, got {n_train}")
    learned = named[policy](random_state=seed)
    if log.contexts is None and learned._is_contextual:
        raise ValueError(f"--policy {policy} requires --context; name the columns of the context")
    first, second = log.take(slice(0, n_train)), log.take(slice(n_train, None))
    contexts = [[0.0]] * n_train if log.contexts is None else first.contexts
    learned.learn(contexts, first.actions, first.rewards)
    return learned, second
