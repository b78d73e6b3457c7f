"""Saving and loading: equal objects, refused values, and files after crashes."""

import copy
import errno
import json
import os
import pickle
import pickletools
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from internals import forest_of, model_of, persistence_container, state_of, trained_head
from kill_saves import kill_saves, new_trees
from mutations import parsed, sealed, start_of
from saved import dense_rows, load_any, saved, several_labels, sparse_rows

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree, InvariantError
from cmt_numba.persistence import Contents, FileFormatError

NAMES = (
    *("empty", "dense", "dense forest", "sparse", "sparse forest", "bounded", "bounded by age"),
    *("classifier", "sparse classifier"),
    *("softmax classifier", "multilabel classifier", "pair classifier", "retriever by value"),
    *("retriever of directions", "retriever of objects", "retriever after removals"),
)


def go_on(thing: Any) -> list[Any]:
    """Query an object, let it learn, and query it again; return all answers."""
    if isinstance(thing, ContextualMemoryTree):
        return _tree_goes_on(thing)
    sparse = model_of(thing).sparse if isinstance(thing, CMTRetriever) else trained_head(thing).parameters.sparse
    rows = sparse_rows(40, 40, 5) if sparse else dense_rows(40, 5, 5)
    said = [thing.predict(rows)]
    if isinstance(thing, CMTRetriever):
        values: Any = [{"more": i} for i in range(40)]
        if model_of(thing).memories.values.are_vectors:
            values = model_of(thing).memories.values.all()[:40]
        thing.partial_fit(rows, values).remove([1, 4]).feedback(
            rows[:9], model_of(thing).memories.ids[:9] + 0, np.ones(9)
        )
        return [*said, thing.predict(rows), *thing.kneighbors(rows)]
    if isinstance(thing, CMTMultilabelClassifier):
        y: Any = thing.classes_[[0, 1] * 20] if model_of(thing).pair is not None else several_labels(40, 35, 5)
    else:
        y = np.concatenate([thing.classes_, thing.classes_])[:40] if thing.classes_.size >= 20 else thing.classes_
        y = np.resize(y, 40)
    thing.partial_fit(rows, y)
    said += [thing.predict(rows), thing.predict_proba(rows)]
    return said if not thing.store_examples else [*said, *thing.kneighbors(rows)]


def _tree_goes_on(tree: ContextualMemoryTree) -> list[Any]:
    sparse = state_of(tree) is not None and state_of(tree).parameters.sparse
    rows = sparse_rows(80, 40, 5) if sparse else dense_rows(80, 5, 5)
    said: list[Any] = [tree.query(rows, 3).ids, tree.insert(rows)]
    tree.remove(said[-1][::3])
    tree.reroute(30)
    hits = tree.query(rows, 4, 4, epsilon=0.5)
    tree.update(rows, hits, np.random.default_rng(6).random(hits.ids.shape))
    tree.check_invariants()
    after = tree.query(rows, 4, 6, epsilon=0.2)
    return [*said, hits.ids, after.ids, after.scores, *after.exploration]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if scipy.sparse.issparse(one):
        return one.shape == other.shape and (one != other).nnz == 0
    if one.dtype.kind == "f":
        return np.array_equal(one, other, equal_nan=True)
    return one.dtype == other.dtype and np.array_equal(one, other)


def _copied(thing: Any, path: Path) -> Any:
    return pickle.loads(pickle.dumps(thing))


def _deepcopied(thing: Any, path: Path) -> Any:
    return copy.deepcopy(thing)


def _from_joblib(thing: Any, path: Path) -> Any:
    joblib.dump(thing, path)
    return joblib.load(path)


def _mapped(thing: Any, path: Path) -> Any:
    thing.save(path)
    return type(thing).load(path, mmap=True)


def _loaded(thing: Any, path: Path) -> Any:
    thing.save(path)
    return type(thing).load(path)


@needs_jit
@pytest.mark.parametrize("way", [_loaded, _mapped, _copied, _from_joblib, _deepcopied])
@pytest.mark.parametrize("name", NAMES)
def test_loaded_objects_continue_as_before(things: dict[str, Any], name: str, way: Any, tmp_path: Path):
    thing = pickle.loads(pickle.dumps(things[name]))
    path = tmp_path / "saved"
    again = way(thing, path)
    before = path.read_bytes() if path.exists() else b""
    assert repr(again) == repr(thing)
    assert saved(again, tmp_path / "twice") == saved(thing, tmp_path / "once")
    assert same(go_on(again), go_on(thing))
    assert saved(again, tmp_path / "twice") == saved(thing, tmp_path / "once")
    assert not before or path.read_bytes() == before


def test_a_file_of_a_tree_that_has_been_emptied(tmp_path: Path):
    for rows in (dense_rows(50, 5), sparse_rows(50, 40)):
        tree = ContextualMemoryTree(n_trees=2, leaf_multiplier=1.0, random_state=0)
        tree.remove(tree.insert(rows))
        again = _loaded(tree, tmp_path / "tree")
        again.check_invariants()
        assert again.n_memories == 0
        assert again.n_features == rows.shape[1]
        assert same(_tree_goes_on(again), _tree_goes_on(tree))


def test_files_have_no_spare_room_and_nothing_of_what_was_removed(tmp_path: Path):
    dense = np.eye(40, dtype=np.float32)
    for rows in (dense, scipy.sparse.csr_array(dense)):
        tree = ContextualMemoryTree(random_state=0)
        secret = np.zeros((1, 40), np.float32)
        secret[0, :2] = 0.6, 0.8
        tree.insert(rows)
        ids = tree.insert(secret if rows is dense else scipy.sparse.csr_array(secret))
        pattern = np.float32(0.6).tobytes()
        assert pattern in saved(tree, tmp_path / "tree")
        tree.remove(ids)
        file = saved(tree, tmp_path / "tree")
        described, arrays = parsed(file)
        keys = arrays[[entry["name"] for entry in described["arrays"]].index("state.keys.values")]
        assert pattern not in keys
        assert len(keys) == (40 * 40 if rows is dense else 40) * 4
        assert len(file) < tree.nbytes + 4096


def test_files_without_attributes_that_depend_on_parameters(tmp_path: Path):
    X = dense_rows(20, 5)
    labels = np.eye(4, dtype=int)[np.arange(20) % 4]
    for estimator, y in (
        (CMTMultilabelClassifier(threshold=0.0, random_state=0), labels),
        (CMTRetriever("value", random_state=0), X[:, :2]),
        (CMTRetriever("key", random_state=0), X[:, :2]),
    ):
        again = _loaded(estimator.fit(X, y), tmp_path / "estimator")
        np.testing.assert_array_equal(again.predict(X), estimator.predict(X))


def test_equal_trees_have_equal_files(tmp_path: Path):
    """The room for memories that never came, for example because their insert failed, is not saved."""
    tree = ContextualMemoryTree(random_state=0)
    tree.insert(dense_rows(20, 5))
    file = saved(tree, tmp_path / "tree")
    state = state_of(tree)
    forest_of(tree).state = state._replace(members=np.pad(state.members, ((0, 0), (0, 0), (0, 40))))
    assert saved(tree, tmp_path / "tree") == file


def test_names_of_features_come_back(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(dense_rows(24, 5), columns=list("abcde"))
    classifier = CMTClassifier(random_state=0).fit(frame, np.arange(24) % 6)
    again = _loaded(classifier, tmp_path / "classifier")
    assert again.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_array_equal(again.predict(frame), classifier.predict(frame))


def test_parameters_and_estimators_that_have_learned_nothing(tmp_path: Path):
    classifier = CMTClassifier(n_candidates=np.int64(3), aggressiveness=0.5, loss="softmax", random_state=None)
    again = _loaded(classifier, tmp_path / "classifier")
    assert again.get_params() == classifier.get_params()
    assert not hasattr(again, "classes_")


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "classifier": {"method": False, "n_candidates": -1, "loss": "squared", "n_jobs": 0, "n_neighbors": 0},
    "multilabel classifier": {"n_candidates": -3, "random_state": -1, "store_examples": 1},
    "retriever of objects": {"target_recall": 0.0, "search": 3, "regularization": 0, "n_components": 0},
}


@needs_jit
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_parameters_are_neither_saved_nor_loaded(things: dict[str, Any], name: str, tmp_path: Path):
    path = tmp_path / "file"
    for parameter, value in IMPOSSIBLE[name].items():
        described, arrays = parsed(saved(things[name], path))
        described["fields"]["parameters"][parameter] = value
        path.write_bytes(sealed(described, arrays))
        with pytest.raises(FileFormatError, match="has invalid contents"):
            load_any(path)
        path.unlink()
        with pytest.raises((TypeError, ValueError)):
            pickle.loads(pickle.dumps(things[name])).set_params(**{parameter: value}).save(path)
        assert list(tmp_path.iterdir()) == []


@needs_jit
def test_unloadable_objects_are_not_saved(things: dict[str, Any], tmp_path: Path):
    path = tmp_path / "file"
    tree, classifier, retriever = (
        pickle.loads(pickle.dumps(things[name])) for name in ("dense", "classifier", "retriever by value")
    )
    before = saved(tree, path)
    state_of(tree).keys.ids[0] = 10**6
    model_of(classifier).classes = classifier.classes_[::-1]
    model_of(retriever).memories.ids[0] = 10**6
    for thing in (tree, classifier, retriever):
        with pytest.raises(InvariantError):
            thing.check_invariants()
        with pytest.raises(InvariantError):
            thing.save(path)
        assert path.read_bytes() == before
        assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("value", [(1, 2), {1: "a"}, {2}, [b"bytes"], {"a": np.int64(3)}, [[object()]]])
def test_values_that_json_would_change_are_refused(value: Any, tmp_path: Path):
    retriever = CMTRetriever(random_state=0).fit(dense_rows(2, 3), ["first", value])
    with pytest.raises(TypeError, match="entry 1 of values must be None, a bool"):
        retriever.save(tmp_path / "retriever")
    assert list(tmp_path.iterdir()) == []


def test_other_values_that_cannot_be_saved(tmp_path: Path):
    with pytest.raises(TypeError, match="random_state must be a number"):
        CMTRetriever(random_state=np.random.RandomState(0)).save(tmp_path / "x")
    dates = np.array(["2020-01-01", "2021-01-01"], "M8[D]")
    with pytest.raises(TypeError, match="values can be saved only as numbers, text"):
        CMTRetriever().fit(dense_rows(2, 3), dates).save(tmp_path / "x")
    with pytest.raises(ValueError, match="the saved parameters must take at most"):
        persistence_container.write_contents(tmp_path / "x", Contents("of a test", {"long": "x" * (1 << 16)}, {}))
    assert list(tmp_path.iterdir()) == []


def test_pickles_hold_only_arrays_and_parameters(things: dict[str, Any]):
    names = globals_of(pickle.dumps(things["sparse forest"], protocol=2))
    assert all(name.startswith(("numpy", "copyreg", "_codecs", "__builtin__", "cmt_numba.tree ")) for name in names)


def globals_of(pickled: bytes) -> set[str]:
    return {str(argument) for operation, argument, _ in pickletools.genops(pickled) if operation.name == "GLOBAL"}


def test_pickles_refer_to_public_classes_only(things: dict[str, Any]):
    tree = things["dense"]
    for thing in (*things.values(), (tree.query(np.eye(5)), tree.leaves())):
        ours = {name for name in globals_of(pickle.dumps(thing, protocol=2)) if name.startswith("cmt_numba")}
        assert ours
        assert not [name for name in ours if re.search(r"[. ]_", name)]


@needs_jit
@pytest.mark.parametrize("name", ["dense", "classifier", "retriever by value"])
def test_arrays_that_joblib_maps_can_be_learned_from(things: dict[str, Any], name: str, tmp_path: Path):
    joblib.dump(things[name], tmp_path / "thing")
    mapped = joblib.load(tmp_path / "thing", mmap_mode="r")
    assert same(go_on(mapped), go_on(pickle.loads(pickle.dumps(things[name]))))


# Files


def test_a_failed_save_leaves_the_old_file(things: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "tree.cmt"
    before = saved(things["dense"], path)

    def fail(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        things["sparse"].save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_cannot_be_read_is_named(things: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    things["dense"].save(tmp_path / "file")
    monkeypatch.setattr("cmt_numba.persistence._container._read_array", fail)
    with pytest.raises(OSError, match=r"Input/output error: .*file"):
        ContextualMemoryTree.load(tmp_path / "file")


@needs_jit
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_save_leaves_the_old_file_or_the_new_one():
    trees, n_unfinished, seed = new_trees(1000), 0, 0
    while n_unfinished == 0 and seed < 20:  # until a process was killed while writing
        n_whole, n_unfinished = kill_saves(25, seed, trees)
        assert n_whole == 25
        seed += 1
    assert n_unfinished > 0


def test_saving_keeps_links_and_permissions(things: dict[str, Any], tmp_path: Path):
    path, link = tmp_path / "tree.cmt", tmp_path / "link.cmt"
    things["empty"].save(path)
    path.chmod(0o640)
    link.symlink_to(path)
    things["dense"].save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert ContextualMemoryTree.load(str(path)).n_memories == things["dense"].n_memories


@needs_jit
def test_processes_share_a_mapped_file(things: dict[str, Any], tmp_path: Path):
    path = tmp_path / "tree.cmt"
    before = saved(things["dense"], path)
    program = (
        "import sys, json, numpy\n"
        "from cmt_numba import ContextualMemoryTree\n"
        "tree = ContextualMemoryTree.load(sys.argv[1], mmap=True)\n"
        "print(json.dumps(tree.query(numpy.eye(5), 3).ids.tolist()), flush=True)\n"
        "tree.remove(tree.ids)\n"
        "print(tree.n_memories, flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    mapped = ContextualMemoryTree.load(path, mmap=True)
    expected = mapped.query(np.eye(5), 3).ids.tolist()
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == expected
    assert process.stdout.readline() == "0\n"
    things["sparse"].save(path)  # in place of a mapped file
    assert mapped.query(np.eye(5), 3).ids.tolist() == expected
    things["dense"].save(path)
    process.communicate()
    assert process.returncode == 0
    assert path.read_bytes() == before


def test_mapping_reads_no_arrays(things: dict[str, Any], tmp_path: Path):
    path = tmp_path / "tree.cmt"
    file = bytearray(saved(things["dense"], path))
    file[start_of(bytes(file), "state.members")] ^= 0xFF
    path.write_bytes(file)
    with pytest.raises(FileFormatError, match="members' is damaged"):
        ContextualMemoryTree.load(path)
    mapped = ContextualMemoryTree.load(path, mmap=True)
    with pytest.raises(InvariantError, match="not every memory is in exactly one leaf"):
        mapped.check_invariants()
