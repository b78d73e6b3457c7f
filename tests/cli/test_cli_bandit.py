"""The commands about bandits, on a small made log."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cmt_numba.bandits import LinUCB, load_policy
from cmt_numba.bandits.evaluation import Log, evaluate
from cmt_numba.persistence import FileFormatError

pytest.importorskip("click")
pytest.importorskip("rich")
pandas = pytest.importorskip("pandas")

from test_cli import fail, succeed  # noqa: E402

COLUMNS = ("--action", "item", "--reward", "click", "--context", "a", "--context", "b")


@pytest.fixture(scope="module")
def frame() -> Any:
    rng = np.random.default_rng(0)
    X, actions = rng.normal(size=(600, 2)), rng.integers(0, 3, 600)
    frame = pandas.DataFrame(X, columns=["a", "b"])
    frame["item"], frame["p"] = actions, 1 / 3
    frame["click"] = (rng.random(600) < 0.2 + 0.5 * (actions == X.argmax(axis=1))).astype(int)
    return frame


@pytest.fixture
def path(frame: Any, tmp_path: Path) -> Path:
    frame.to_csv(tmp_path / "log.csv", index=False)
    return tmp_path / "log.csv"


def test_a_named_policy_is_trained_and_evaluated(path: Path, frame: Any):
    shown = succeed("bandit", "evaluate", path, "--policy", "linucb", "--propensity", "p", *COLUMNS, "--json", "-")
    found = json.loads(shown)
    assert found["rows"] == 300
    values = {row["estimator"]: row for row in found["estimates"]}
    assert set(values) == {"ips", "snips", "dm", "dr", "sndr", "switch"}
    X, actions, rewards = frame[["a", "b"]].to_numpy(), frame["item"].to_numpy(), frame["click"].to_numpy()
    policy = LinUCB(random_state=0).learn(X[:300], actions[:300], rewards[:300])
    log = Log(actions[300:], rewards[300:], X[300:], np.full(300, 1 / 3))
    assert values["ips"]["value"] == pytest.approx(evaluate(policy, log).estimates["ips"].value)
    assert values["ips"]["low"] < values["ips"]["value"] < values["ips"]["high"]


def test_a_saved_policy_is_evaluated_on_the_whole_log(path: Path, tmp_path: Path):
    LinUCB(3, random_state=0).save(tmp_path / "policy.cmt")
    assert isinstance(load_policy(tmp_path / "policy.cmt"), LinUCB)
    shown = succeed("bandit", "evaluate", path, "--policy", tmp_path / "policy.cmt", *COLUMNS, "--interval", "chernoff")
    assert "600" in shown
    assert "snips" in shown
    assert "bootstrap" in shown  # of what the bound is not valid for
    with pytest.raises(FileFormatError):
        load_policy(path)


def test_a_report_shows_estimates_and_weights(path: Path, tmp_path: Path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "result.html"
    given = ("bandit", "evaluate", path, "--policy", "linucb", "--propensity", "p", *COLUMNS)
    found = json.loads(succeed(*given, "--report", page, "--interval", "bernstein", "--json", "-"))
    shown = page.read_text(encoding="utf-8")
    assert shown.count("<svg ") == 2
    assert "<script" not in shown
    for row in found["estimates"]:
        assert f"<td>{row['value']:.4f}</td><td>{row['low']:.4f}</td><td>{row['high']:.4f}</td>" in shown
    assert "cmt-numba bandit evaluate" in shown
    assert "linucb: log.csv" in shown
    fail(*given, "--report", tmp_path / "none" / "result.html")


def test_contexts_may_be_a_column_of_lists(frame: Any, tmp_path: Path):
    pairs = frame[["a", "b"]].to_numpy().tolist()
    listed = pandas.DataFrame({"action": frame["item"], "reward": frame["click"], "context": pairs})
    listed.to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    out = tmp_path / "result.json"
    log = tmp_path / "log.jsonl"
    succeed("bandit", "evaluate", log, "--policy", "linucb", "--context", "context", "--tau", 0.5, "--json", out)
    assert "underestimated" in json.loads(out.read_text(encoding="utf-8"))["advice"][-1]


def test_complaints(path: Path, tmp_path: Path):
    evaluate = ("bandit", "evaluate", path)
    assert "the column 'action'" in fail(*evaluate, "--policy", "random")
    assert "one of random" in fail(*evaluate, "--policy", "guess", *COLUMNS)
    assert "requires --context" in fail(*evaluate, "--policy", "linucb", *COLUMNS[:4])
    assert "must select some but not all of the" in fail(*evaluate, "--policy", "random", "--train", 1.0, *COLUMNS)
    assert "suffix" in fail("bandit", "evaluate", tmp_path / "log.txt", "--policy", "random")
    assert "from --least to --largest" in fail(*evaluate, "--policy", "random", "--largest", 0.5, *COLUMNS)
    (tmp_path / "empty.csv").touch()
    assert "empty.csv: " in fail("bandit", "evaluate", tmp_path / "empty.csv", "--policy", "random")


def test_contexts_of_text_and_policies_without_rewards_are_named(frame: Any, tmp_path: Path):
    path, given = tmp_path / "log.parquet", ("bandit", "evaluate", tmp_path / "log.parquet", "--policy", "linucb")
    pytest.importorskip("pyarrow")
    frame.assign(b="red", click=0).to_parquet(path)
    assert "'b' of contexts must contain numbers" in fail(*given, *COLUMNS)
    shown = succeed(*given, *COLUMNS[:6], "--propensity", "p")
    assert "bernstein or chernoff" in " ".join(shown.replace("│", " ").split())
    frame.assign(context=[[1.0] * (1 + i % 2) for i in range(len(frame))]).to_parquet(path)
    assert "lists of the same length" in fail(*given, *COLUMNS[:4], "--context", "context")
