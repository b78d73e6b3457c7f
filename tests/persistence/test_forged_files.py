"""Files of every kind with a wrong array or field and a valid checksum are refused, or load as objects that work."""

from pathlib import Path

import numba
import pytest
from conftest import needs_jit
from file_kinds import MAKERS, in_file, use
from forged import check_forgeries

APART: dict[str, tuple[str, ...]] = {
    # Parts of a sparse bandit that are those of a dense one, whose file is much smaller.
    "sparse bandit": (
        *("ids", "model.", "state.", "feedback.t", "feedback.figures", "feedback.weights", "options", "n_rewards"),
        *("turn", "by_context.", "pending.most", "pending.next_id"),
    ),
    # Forge only what an encoder adds: loading a CMTClassifier for every forgery is slow.
    "text classifier with an encoder": ("dense.", "sums.", "vectors.", "stored.t", "stored.i", "model"),
}
# Parts that have tests of their own: trees of bandits and memories, distances, vectorizers.
OF_OTHERS = ("by_context.tree.", "retriever", "distance", "metric.", "vectorizer")
# The same code reads these parts for all kinds of files, so one kind is enough.
OF_ALL = ("generator.", "model.generator.")
# With bounds checks, a wrong index in a kernel is seen, so all forgeries are made.
STEP = 1 if numba.config.BOUNDSCHECK else 7


@needs_jit
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MAKERS)
def test_forged_files_are_refused_or_work(name: str, tmp_path: Path):
    _, file, load = in_file(name)
    apart = OF_OTHERS + APART.get(name, ()) + (() if name == "random" else OF_ALL)
    check_forgeries(file, load, use, tmp_path / "forged", apart, STEP)
