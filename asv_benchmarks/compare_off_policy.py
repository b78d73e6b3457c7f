"""Compare the estimators of ``cmt_numba.bandits.evaluation`` with Open Bandit Pipeline on the Open Bandit Dataset.

    python asv_benchmarks/compare_off_policy.py --data path/to/folder

The folder holds ``openbandit/{random,bts}/{all,men,women}/*.csv.gz``, the sample of the dataset that comes with the
package ``obp`` (https://github.com/st-tech/zr-obp), which is needed too, with PyTorch. For each log, policies are
evaluated that differ from the one that made it: a random softmax for each context, and the other log's frequencies of
actions by position. Prints the value by each estimator and the largest difference between both libraries, and fails if
that is above 1e-9.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from obp import ope
from tabulate import tabulate

from cmt_numba.bandits.evaluation import Log, estimate_rewards, evaluate

CAMPAIGNS = ("all", "men", "women")
TAU, THRESHOLD = 0.02, 3.0


def read(folder: Path, behaviour: str, campaign: str) -> pandas.DataFrame:
    """Return the rows of a log."""
    return pandas.read_csv(folder / "openbandit" / behaviour / campaign / f"{campaign}.csv.gz", index_col=0)


def log_of(frame: pandas.DataFrame, n_actions: int) -> Log:
    """Return a log whose contexts are indicators of the position and of the user's features."""
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
    """Return the estimates of Open Bandit Pipeline."""
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
    """Return the switch estimator, whose threshold has had two names."""
    try:
        return ope.SwitchDoublyRobust(lambda_=THRESHOLD)
    except TypeError:
        return ope.SwitchDoublyRobust(tau=THRESHOLD)


def policies(frame: pandas.DataFrame, other: pandas.DataFrame, n_actions: int) -> dict[str, np.ndarray]:
    """Return the probabilities of the policies to evaluate."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(len(frame), n_actions))
    softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    counts = np.ones((4, n_actions))
    np.add.at(counts, (other["position"].to_numpy(), other["item_id"].to_numpy()), 1)
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    return {"softmax": softmax, "other log": frequencies[frame["position"].to_numpy()]}


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    arguments = parser.parse_args()
    table, worst = [], 0.0
    for behaviour, others in (("random", "bts"), ("bts", "random")):
        for campaign in CAMPAIGNS:
            frame, other = read(arguments.data, behaviour, campaign), read(arguments.data, others, campaign)
            n_actions = 1 + int(max(frame["item_id"].max(), other["item_id"].max()))
            log = log_of(frame, n_actions)
            expected = np.clip(estimate_rewards(log), 0.0, 1.0)
            for name, probabilities in policies(frame, other, n_actions).items():
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


if __name__ == "__main__":
    main()
