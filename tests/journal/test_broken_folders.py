"""Durable objects lose no acknowledged change, whatever fails. ``break_folders.py`` draws more faults."""

import os

import pytest
from break_folders import KINDS, break_folders
from conftest import needs_jit


@needs_jit
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_faults_lose_nothing(name: str):
    n_faults, wrong = break_folders(name, 15, seed=0)
    assert n_faults.total() >= 15
    assert not wrong
