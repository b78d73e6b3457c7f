"""The examples of bandits run, and show what they say."""

import re

import pytest
from conftest import load_script


def test_requests_are_answered_better_and_better(capsys: pytest.CaptureFixture[str]):
    load_script("examples/bandits/answer_requests.py").main(["--rounds", "400"])
    shown = capsys.readouterr().out
    rewards = [float(value) for value in re.findall(r"mean reward ([\d.]+)", shown)]
    assert rewards[-1] > max(0.6, rewards[0])
    assert re.search(r"random: estimated from the log 0\.[12]", shown)
