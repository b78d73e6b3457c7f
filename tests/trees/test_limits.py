"""Numbers that would exhaust time or memory, and paths that are not regular files, are refused at once."""

import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_jit
from internals import persistence_container

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree
from cmt_numba._validation import check_wanted
from cmt_numba.metrics import ndcg_at, precision_at
from cmt_numba.persistence import FileFormatError
from cmt_numba.rewards import LabelEquality

ABSURD = 10**9
MOST = 1_000_000
ROWS = np.eye(4, dtype=np.float32)


@contextmanager
def soon(seconds: int = 20) -> Iterator[None]:
    """Fail after some seconds instead of waiting."""

    def fail(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def tree() -> ContextualMemoryTree:
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(ROWS)
    return tree


def test_numbers_of_a_tree(tree: ContextualMemoryTree):
    for call in (
        lambda: ContextualMemoryTree(n_reroutes=ABSURD),
        lambda: tree.query(ROWS, ABSURD),
        lambda: tree.query(ROWS, MOST + 1, among=[0]),
        lambda: tree.learn(ROWS, LabelEquality([0] * 4, [0] * 4), k=ABSURD),
        lambda: tree.learn(ROWS, LabelEquality([0] * 4, [0] * 4), n_passes=ABSURD),
        lambda: tree.teach(ROWS, np.arange(4), n_passes=ABSURD),
        lambda: precision_at(ROWS, np.arange(4)[:, None], ABSURD),
        lambda: ndcg_at(ROWS, np.arange(4)[:, None], ABSURD),
    ):
        with soon(), pytest.raises(ValueError, match=r"must be between [01] and "):
            call()
    hits = tree.query(ROWS[:1], MOST)
    assert hits.ids.shape == (1, MOST)
    assert np.count_nonzero(hits.ids != -1) == 4
    assert tree.query(ROWS[:1], 1, ABSURD).ids.tolist() == [[0]]  # leaves cost nothing in an empty tree


def test_limits_of_existing_memories():
    assert check_wanted("k", MOST + 1, MOST + 1) == MOST + 1
    with pytest.raises(ValueError, match="k must be between 1 and 1000001, got 1000002"):
        check_wanted("k", MOST + 2, MOST + 1)


Y = np.arange(4)
ESTIMATORS: dict[str, tuple[Callable[..., Any], Any, list[str], list[str]]] = {
    "classifier": (
        CMTClassifier,
        Y,
        ["n_head_passes", "n_neighbors"],
        ["top_classes", "kneighbors"],
    ),
    "multilabel classifier": (
        CMTMultilabelClassifier,
        np.eye(4, dtype=int),
        ["n_head_passes"],
        ["top_labels", "kneighbors"],
    ),
    "retriever": (CMTRetriever, Y, ["n_components", "n_value_passes"], ["query", "kneighbors"]),
}


@needs_jit
@pytest.mark.parametrize("what", ESTIMATORS)
def test_numbers_of_estimators(what: str):
    kind, y, parameters, methods = ESTIMATORS[what]
    for name in parameters:
        with soon(60), pytest.raises(ValueError, match=f"{name} must be between [01] and "):
            kind(random_state=0, **{name: ABSURD}).fit(ROWS, y)
    estimator = kind(random_state=0).fit(ROWS, y)
    if what != "retriever":
        estimator.set_params(n_candidates=ABSURD).predict(ROWS)
    for method in methods:
        with pytest.raises(ValueError, match=f"(k|n_neighbors) must be between 1 and {MOST}, got {ABSURD}"):
            getattr(estimator, method)(ROWS, ABSURD)


def test_file_of_empty_space(tree: ContextualMemoryTree, tmp_path: Path):
    path = tmp_path / "tree.cmt"
    tree.save(path)
    with path.open("r+b") as file:
        assert not persistence_container.is_empty_space(file, path.stat().st_size, large=1)
        file.truncate(1 << 28)
    if not hasattr(os, "SEEK_HOLE") or path.stat().st_blocks * 512 > 1 << 24:
        pytest.skip("no file has holes here")
    with pytest.raises(FileFormatError, match="is mostly empty"):
        ContextualMemoryTree.load(path)


# Paths that are not files


@pytest.fixture
def no_files(tmp_path: Path) -> list[Path]:
    folder, pipe, link = tmp_path / "folder", tmp_path / "pipe", tmp_path / "link"
    folder.mkdir()
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    return [folder, pipe, link, Path(os.devnull)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_saving_to_a_special_file_is_refused(
    tree: ContextualMemoryTree, no_files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # the names of sockets are short
        server.bind("socket")
        monkeypatch.setattr(tree, "_contents", None)  # must not be reached
        for path in [*no_files, tmp_path / "socket"]:
            kind = path.stat().st_mode
            with soon(), pytest.raises(OSError, match="is not a regular file") as caught:
                tree.save(path)
            assert caught.value.errno == errno.EINVAL
            assert path.stat().st_mode == kind
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "pipe", "socket"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_loading_from_a_special_file_is_refused(no_files: list[Path]):
    for path in no_files:
        for mmap in (False, True):
            with soon(), pytest.raises((FileFormatError, IsADirectoryError)):
                ContextualMemoryTree.load(path, mmap=mmap)
