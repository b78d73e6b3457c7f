"""Saving and loading: what comes back, what does not get in, and what crashes leave."""

import json
import os
import pickle
import pickletools
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit
from kill_saves import kill_saves, new_trees
from make_fixtures import FIXTURES, answers
from mutations import MAGIC, PREAMBLE, parsed, sealed
from saved import check, dense_rows, load_any, objects, several_labels, sparse_rows

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever, ContextualMemoryTree, InvariantError
from cmt_numba._forest.state import (
    CELLS_WANTED,
    COUNT,
    FREE_NODE,
    LONGEST,
    N_MEMORIES,
    NEXT_ID,
    NODE,
    NODES_END,
    ROOT,
    TABLES_END,
)
from cmt_numba.persistence import FORMAT_VERSION, FileFormatError, _container, _versions

CORPUS = Path(__file__).parent / "corpus"


@pytest.fixture(scope="module")
def things() -> dict[str, Any]:
    return objects()


NAMES = (
    *("empty", "dense", "dense forest", "sparse", "sparse forest", "bounded", "bounded by age"),
    *("classifier", "sparse classifier"),
    *("softmax classifier", "multilabel classifier", "pair classifier", "retriever by value"),
    *("retriever of directions", "retriever of objects", "retriever after removals"),
)


def saved(thing: Any, path: Path) -> bytes:
    thing.save(path)
    return path.read_bytes()


def go_on(thing: Any) -> list[Any]:
    """Have an object answer, learn and answer again, and return all that it has said."""
    if isinstance(thing, ContextualMemoryTree):
        return _tree_goes_on(thing)
    sparse = thing._sparse if isinstance(thing, CMTRetriever) else thing.head_.parameters.sparse
    rows = sparse_rows(40, 40, 5) if sparse else dense_rows(40, 5, 5)
    said = [thing.predict(rows)]
    if isinstance(thing, CMTRetriever):
        values: Any = [{"more": i} for i in range(40)]
        if thing._memories.values.are_vectors:
            values = thing._memories.values.all()[:40]
        thing.partial_fit(rows, values).remove([1, 4]).feedback(rows[:9], thing._memories.ids[:9] + 0, np.ones(9))
        return [*said, thing.predict(rows), *thing.kneighbors(rows)]
    if isinstance(thing, CMTMultilabelClassifier):
        y: Any = thing.classes_[[0, 1] * 20] if thing._pair is not None else several_labels(40, 35, 5)
    else:
        y = np.concatenate([thing.classes_, thing.classes_])[:40] if thing.classes_.size >= 20 else thing.classes_
        y = np.resize(y, 40)
    thing.partial_fit(rows, y)
    said += [thing.predict(rows), thing.predict_proba(rows)]
    return said if thing.examples_ is None else [*said, *thing.kneighbors(rows)]


def _tree_goes_on(tree: ContextualMemoryTree) -> list[Any]:
    sparse = tree._state is not None and tree._allocated().parameters.sparse
    rows = sparse_rows(80, 40, 5) if sparse else dense_rows(80, 5, 5)
    said: list[Any] = [tree.query(rows, 3).ids, tree.insert(rows)]
    tree.remove(said[-1][::3])
    tree.reroute(30)
    hits = tree.query(rows, 4, 4, epsilon=0.5)
    tree.update(rows, hits, np.random.default_rng(6).random(hits.ids.shape))
    tree.check_invariants()
    after = tree.query(rows, 4, 6, epsilon=0.2)
    return [*said, hits.ids, *after[:2], *after.exploration]


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
@pytest.mark.parametrize("way", [_loaded, _mapped, _copied, _from_joblib])
@pytest.mark.parametrize("name", NAMES)
def test_what_comes_back_goes_on_as_before(things: dict[str, Any], name: str, way: Any, tmp_path: Path):
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
        keys = arrays[[entry["name"] for entry in described["arrays"]].index("keys.values")]
        assert pattern not in keys
        assert len(keys) == (40 * 40 if rows is dense else 40) * 4
        assert len(file) < tree.nbytes + 4096


def test_classes_of_many_types_come_back(tmp_path: Path):
    rows = dense_rows(24, 5)
    y = np.arange(24) % 6
    kinds: list[np.ndarray] = [
        np.array([-3, 0, 1, 4, 5, 9], np.int16)[y],
        np.array(["a", "bb", "", "\N{SNOWMAN}", "\U0001f600", "z z"])[y],
        np.array(["a", "bb", "", "\N{SNOWMAN}", "\U0001f600", "z z"], object)[y],
        np.array([False, True])[y % 2],
    ]
    for classes in kinds:
        classifier = CMTClassifier(random_state=0).fit(rows, classes)
        again = _loaded(classifier, tmp_path / "classifier")
        assert again.classes_.dtype == classifier.classes_.dtype
        assert again.classes_.tolist() == classifier.classes_.tolist()
        assert again.predict(rows).tolist() == classifier.predict(rows).tolist()


def test_names_of_features_come_back(tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(dense_rows(24, 5), columns=list("abcde"))
    classifier = CMTClassifier(random_state=0).fit(frame, np.arange(24) % 6)
    again = _loaded(classifier, tmp_path / "classifier")
    assert again.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_array_equal(again.predict(frame), classifier.predict(frame))


def test_many_labels_of_which_few_are_common(tmp_path: Path):
    X, Y = sparse_rows(400, 300), several_labels(400, 1500)
    classifier = CMTMultilabelClassifier(random_state=0, n_head_passes=1).fit(X, Y)
    assert 0 < classifier.head_.common.labels.size < classifier.forest_.n_memories
    again = _loaded(classifier, tmp_path / "classifier")
    for one in (classifier, again):
        one.partial_fit(X[:50], Y[:50])
    for mine, its in zip(classifier.top_labels(X), again.top_labels(X), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_parameters_and_estimators_that_have_learned_nothing(tmp_path: Path):
    classifier = CMTClassifier(n_trees=np.int64(3), alpha=0.5, loss="softmax", random_state=None)
    again = _loaded(classifier, tmp_path / "classifier")
    assert again.get_params() == classifier.get_params()
    assert not hasattr(again, "forest_")


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "classifier": {"method": False, "n_trees": -1, "loss": "squared", "n_jobs": 0, "alpha": 2.0, "n_neighbors": 0},
    "multilabel classifier": {"leaf_multiplier": 0.0, "n_probes": -3, "random_state": -1, "store_examples": 1},
    "retriever of objects": {"n_trees": -1, "search": 3, "regularization": 0, "n_reroutes": -1, "n_components": 0},
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
def test_what_could_not_be_loaded_is_not_saved(things: dict[str, Any], tmp_path: Path):
    path = tmp_path / "file"
    tree, classifier, retriever = (
        pickle.loads(pickle.dumps(things[name])) for name in ("dense", "classifier", "retriever by value")
    )
    before = saved(tree, path)
    tree._state.keys.ids[0] = 10**6
    classifier.classes_ = classifier.classes_[::-1]
    retriever._memories.owners[0] = 10**6
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


def test_what_else_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(TypeError, match="random_state must be a number"):
        CMTRetriever(random_state=np.random.RandomState(0)).save(tmp_path / "x")
    dates = np.array(["2020-01-01", "2021-01-01"], "M8[D]")
    with pytest.raises(TypeError, match="values must be numbers, text"):
        CMTRetriever().fit(dense_rows(2, 3), dates).save(tmp_path / "x")
    monkeypatch.setattr(_container, "_LONGEST_HEADER", 100)
    with pytest.raises(ValueError, match="the parameters take"):
        CMTClassifier().save(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_pickles_hold_only_arrays_and_parameters(things: dict[str, Any]):
    opcodes = pickletools.genops(pickle.dumps(things["sparse forest"], protocol=2))
    names = {argument for opcode, argument, _ in opcodes if opcode.name == "GLOBAL"}
    assert all(name.startswith(("numpy", "copyreg", "_codecs", "__builtin__", "cmt_numba.tree ")) for name in names)


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


@needs_jit
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_save_leaves_the_old_file_or_the_new_one():
    n_whole, n_unfinished = kill_saves(25, 0, new_trees(1000))
    assert n_whole == 25
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
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    mapped = ContextualMemoryTree.load(path, mmap=True)
    expected = mapped.query(np.eye(5), 3).ids.tolist()
    for process in processes:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == expected
        assert process.stdout.readline() == "0\n"
    things["sparse"].save(path)  # in the place of a file that is mapped
    assert mapped.query(np.eye(5), 3).ids.tolist() == expected
    things["dense"].save(path)
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert path.read_bytes() == before


def test_mapping_reads_no_arrays(things: dict[str, Any], tmp_path: Path):
    path = tmp_path / "tree.cmt"
    file = bytearray(saved(things["dense"], path))
    described, _ = parsed(bytes(file))
    entry = next(entry for entry in described["arrays"] if entry["name"] == "members")
    file[entry["offset"]] ^= 0xFF
    path.write_bytes(file)
    with pytest.raises(FileFormatError, match="'members' is damaged"):
        ContextualMemoryTree.load(path)
    mapped = ContextualMemoryTree.load(path, mmap=True)
    with pytest.raises(InvariantError, match="not every memory is in exactly one leaf"):
        mapped.check_invariants()


def test_fixtures_of_every_version_load():
    folders = sorted(FIXTURES.glob("format_*"))
    assert [folder.name for folder in folders] == [f"format_{i + 1}" for i in range(FORMAT_VERSION)]
    for folder in folders:
        expected = json.loads((folder / "answers.json").read_text())
        for name, wanted in expected.items():
            thing = load_any(folder / f"{name}.cmt")
            assert answers(thing) == wanted
            check(thing)


def test_files_of_earlier_versions_are_brought_up_to_date(
    things: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert set(_versions.UPGRADES) == set(range(2, FORMAT_VERSION + 1))
    path = tmp_path / "tree.cmt"
    described, arrays = parsed(saved(things["dense"], path))
    described["fields"]["options"]["reroutes"] = described["fields"]["options"].pop("n_reroutes")
    path.write_bytes(sealed(described, arrays, version=FORMAT_VERSION))

    def rename(contents: Any) -> Any:
        contents.fields["options"]["n_reroutes"] = contents.fields["options"].pop("reroutes")
        return contents

    monkeypatch.setattr(_container, "FORMAT_VERSION", FORMAT_VERSION + 1)
    monkeypatch.setitem(_versions.UPGRADES, FORMAT_VERSION + 1, rename)
    assert repr(ContextualMemoryTree.load(path)) == repr(things["dense"])


# What is refused


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"", "is not a file of cmt-numba"),
        (b"7 12:1 40:0.5\n", "is not a file of cmt-numba"),
        (b"PK\x03\x04" + bytes(100), "is not a file of cmt-numba"),
        (b"\x93cmt-numba\r\n\x1a\n", "is truncated"),
        (
            PREAMBLE.pack(MAGIC, 1, 0, 2**40),
            "its header cannot be 1099511627776 bytes long",
        ),
        (PREAMBLE.pack(MAGIC, 1, 0, 100), "is truncated"),
        (PREAMBLE.pack(MAGIC, 1, 0, 2) + b"{}", "its header is damaged"),
        (PREAMBLE.pack(MAGIC, 99, 0, 0), "has format version 99, .* reads versions 1 to .*; load it with a later"),
        (sealed([], []), "the header must be of type dict"),
        (sealed({"kind": "x", "library": "1", "fields": {}, "arrays": []}, []), "holds an object of the kind 'x'"),
        (sealed({"kind": "ContextualMemoryTree", "library": "1", "fields": {}, "arrays": []}, []), "options must be"),
    ],
)
def test_other_files_are_refused(file: bytes, reason: str, tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(file)
    for mmap in (False, True):
        with pytest.raises(FileFormatError, match=reason) as caught:
            ContextualMemoryTree.load(path, mmap=mmap)
        assert str(caught.value).startswith(str(path))
        assert caught.value.path == path


def test_objects_of_another_kind_are_refused(things: dict[str, Any], tmp_path: Path):
    path = tmp_path / "file"
    things["classifier"].save(path)
    with pytest.raises(FileFormatError, match="of the kind 'CMTClassifier', not ContextualMemoryTree"):
        ContextualMemoryTree.load(path)
    with pytest.raises(FileFormatError, match="not CMTRetriever"):
        CMTRetriever.load(path)
    with pytest.raises(OSError, match="No such file"):
        CMTRetriever.load(tmp_path / "none")
    with pytest.raises(OSError, match="directory"):
        CMTRetriever.load(tmp_path)
    if hasattr(os, "mkfifo"):
        descriptor = None
        os.mkfifo(tmp_path / "pipe")
        descriptor = os.open(tmp_path / "pipe", os.O_RDWR)
        with pytest.raises(FileFormatError, match="is not a regular file"):
            CMTRetriever.load(tmp_path / "pipe")
        os.close(descriptor)


def test_every_cut_and_every_damaged_byte_of_the_header_is_noticed(things: dict[str, Any], tmp_path: Path):
    path = tmp_path / "file"
    file = saved(things["dense"], path)
    header_end = PREAMBLE.size + PREAMBLE.unpack_from(file)[3]
    for n in [*range(0, header_end, 97), *range(header_end, len(file), 311), len(file) - 1]:
        path.write_bytes(file[:n])
        with pytest.raises(FileFormatError):
            ContextualMemoryTree.load(path)
    for n in range(0, header_end, 53):
        path.write_bytes(file[:n] + bytes([file[n] ^ 1]) + file[n + 1 :])
        with pytest.raises(FileFormatError):
            ContextualMemoryTree.load(path)
    path.write_bytes(file + b"\0")
    with pytest.raises(FileFormatError, match="has data after its end"):
        ContextualMemoryTree.load(path)


def forged(file: bytes, name: str, change: Callable[[np.ndarray], None]) -> bytes:
    """Return a file with a changed array and right checksums."""
    described, arrays = parsed(file)
    i = [entry["name"] for entry in described["arrays"]].index(name)
    entry = described["arrays"][i]
    dtypes = {
        "node": NODE,
        "leaf": [("size", "<i4"), ("parent", "<i4"), ("packed", "<i4")],
        "code mark": [("scale", "<f4"), ("error", "<f4")],
    }
    cells = dtypes.get(entry["dtype"], [("feature", "<i4"), ("weight", "<f4"), ("square", "<f4")])
    dtype = np.dtype(entry["dtype"] if entry["dtype"] not in (*dtypes, "weight cell") else cells)
    array = np.frombuffer(bytearray(arrays[i]), dtype).reshape(entry["shape"])
    change(array)
    arrays[i] = array.tobytes()
    return sealed(described, arrays)


def put(index: Any, value: Any, field: str | None = None) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        target = array if field is None else array[field]
        old = np.array(target[index])
        target[index] = value
        assert not np.array_equal(old, target[index], equal_nan=target.dtype.kind == "f"), "the forgery changes nothing"

    return change


def swap(one: Any, other: Any) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        first, second = array[one].copy(), array[other].copy()
        assert not np.array_equal(first, second)
        array[one], array[other] = second, first

    return change


def fill_up(table: np.ndarray) -> None:
    table[table == -1] = 0


def hide(table: np.ndarray) -> None:
    """Move an entry to where a search for it does not come by."""
    empty = np.flatnonzero((table == -1) & (np.roll(table, 1) == -1))[0]
    full = np.flatnonzero(table != -1)[0]
    table[empty], table[full] = table[full], -1


FORGERIES = [
    ("dense", "keys.totals", put(N_MEMORIES, 2**40), "there cannot be 1099511627776 memories"),
    ("dense", "keys.totals", put(NEXT_ID, 3), "the next id cannot be 3"),
    ("sparse", "keys.totals", put(LONGEST, 2**50), "a key cannot have 1125899906842624 cells"),
    ("sparse", "keys.totals", put(LONGEST, 1), "more cells than the longest"),
    ("dense", "keys.ids", put(0, -1), "an id was never given out"),
    ("dense", "keys.ids", put(0, 2**40), "an id was never given out"),
    ("dense", "keys.ids", lambda ids: put(0, ids[1])(ids), "two entries for one key"),
    ("dense", "keys.slot_table", fill_up, "the slot table holds"),
    ("dense", "keys.slot_table", hide, "the slot table hides an entry"),
    ("dense", "keys.values", put(3, np.nan), "a key is not of length 1"),
    ("dense", "keys.values", put(3, 1e30), "a key is not of length 1"),
    ("sparse", "keys.values", put(3, np.inf), "a key is not of length 1"),
    ("sparse", "keys.indices", put(0, -1), "a feature that does not exist"),
    ("sparse", "keys.indices", put(0, 2**31 - 1), "a feature that does not exist"),
    ("sparse", "keys.indices", swap(0, 1), "do not rise"),
    ("sparse", "keys.spans", put((0, 0), -5), "lies outside|is wrong|shares|ends before"),
    ("sparse", "keys.spans", put((0, 1), 2**60), "lies outside"),
    ("sparse", "keys.spans", swap((0, 1), (1, 1)), "before it starts|share a cell|longest"),
    ("dense", "counters", put((0, ROOT), 2**31), "a link to a node that does not exist"),
    ("dense", "counters", put((0, ROOT), -(2**62)), "a link to a leaf that does not exist"),
    ("dense", "counters", put((0, NODES_END), 2**31), "the end of the nodes lies outside"),
    ("dense", "counters", put((0, COUNT), 1), "holds 1 memories"),
    ("dense", "counters", put((0, FREE_NODE), 0), "used twice|is broken"),
    ("sparse", "counters", put((0, CELLS_WANTED), 2**40), "a step is unfinished"),
    ("sparse", "counters", put((0, TABLES_END), 2**40), "the end of the tables lies outside"),
    ("sparse", "counters", put((0, TABLES_END + 10), 0), "a list of free tables is broken"),
    ("dense", "nodes", put((0, 0, 0), 0, "child"), "does not name its parent"),
    ("dense", "nodes", put((0, 0, 1), 2**31 - 1, "child"), "a link to a node that does not exist"),
    ("dense", "nodes", put((0, 0, 0), -(2**31), "child"), "a link to a leaf that does not exist"),
    ("dense", "nodes", put((0, 0, 0), 3, "below"), "a node's counts are wrong"),
    ("dense", "nodes", put((0, 0), np.nan, "bias"), "a model's bias is not finite"),
    ("dense", "nodes", put((0, 0), -1.0, "bias_square"), "squared length is negative"),
    ("dense", "nodes", put((0, 0), -1, "mistakes"), "miscounts its router's mistakes"),
    ("dense", "nodes", put((0, 0), -1, "departed"), "miscounts the memories that have gone"),
    ("dense", "nodes", put((0, 0), 7, "table_bits"), "a dense model has a table"),
    ("sparse", "nodes", put((0, 0), 40, "table_bits"), "there is no table of that size"),
    ("sparse", "nodes", put((0, 0), 2**30, "table_start"), "overlap or leave a gap"),
    ("sparse", "nodes", put((0, 0), 99, "table_used"), "a table miscounts its features"),
    ("bounded", "eviction.order", put(3, 2**30), "does not list each of them"),
    ("bounded", "eviction.order", put(3, -1), "does not list each of them"),
    ("dense", "leaves", put((0, 0), 2**31 - 1, "size"), "a leaf holds more than"),
    ("dense", "leaves", put((0, 0), -1, "size"), "a leaf holds more than"),
    ("dense", "members", put((0, 0, 0), 2**31 - 1), "not every memory is in exactly one leaf"),
    ("dense", "members", put((0, 0, 0), -7), "not every memory is in exactly one leaf"),
    ("dense", "leaf_of", put((0, 0), 77), "names another leaf than its own"),
    ("dense", "leaves", put((0, 0), 0, "packed"), "packed codes, of which there are none"),
    ("compact forest", "leaves", put((1, 0), 2**31 - 1, "packed"), "a leaf's packed codes are not there"),
    ("compact forest", "leaves", put((1, 0), -2, "packed"), "a leaf's packed codes are not there"),
    ("compact forest", "packed.marks", put((0, 0), 0.5, "scale"), "a packed code is not its memory's"),
    ("dense", "codes.values", put(0, 101), "a code is too far from its key"),
    ("dense", "codes.marks", put(0, np.nan, "scale"), "a code's scale or error is not a small number"),
    ("dense", "routers.weights", put((0, 0), np.nan), "weight is not finite"),
    ("dense", "routers.weights", put((0, 5), -3.0), "sum of squares is negative"),
    ("sparse", "routers.table", put((0, 0), 10**6, "feature"), "miscounts its features|that does not exist"),
    ("dense", "scorer.theta", put(0, np.inf), "the scorer has a weight that is not finite"),
    ("classifier", "head_.nodes", put((0, 0), np.inf, "bias"), "the head: a model's bias is not finite"),
    ("classifier", "head_.counters", put((0, NODES_END), 3), "the head must have a scorer for each"),
    ("classifier", "head_.gaps", put(0, -1.0), "a gap is negative"),
    ("classifier", "head_.digest.halves", put((0, 0), 0x7F80), "the digest has a weight that is not finite"),
    ("sparse classifier", "head_.digest.features", put(0, 999), "the digest has a feature that does not exist"),
    ("sparse classifier", "head_.digest.offsets", put(1, -9), "the digest's lists overlap"),
    ("sparse classifier", "head_.postings.labels", put(0, 999), "the index has a label that does not exist"),
    ("sparse classifier", "head_.postings.offsets", put(5, 2**40), "the index's lists overlap"),
    ("multilabel classifier", "head_.common.labels", put(0, 999), "a common label does not exist"),
    ("multilabel classifier", "head_.common.labels", lambda labels: put(0, labels[1])(labels), "is common twice"),
    ("multilabel classifier", "head_.common.places", put(0, 999), "has another label"),
    ("classifier", "examples_.next_of", put(0, 0), "a list of examples is broken"),
    ("classifier", "examples_.next_of", put(40, 50), "a list of examples is broken"),
    ("classifier", "examples_.first_of", put(0, -2), "a list of examples is broken"),
    ("classifier", "examples_.first_of", put(0, -1), "an example is in no list, or twice"),
    ("classifier", "examples_.label_of", put(0, 50), "an example has a label that does not exist"),
    ("classifier", "examples_.keys.ids", swap(0, 1), "another id than its place|slot table"),
    ("classifier", "_label_of_class", put(0, 99), "classes and labels do not exist"),
    ("classifier", "_class_of_label", swap(0, 1), "classes and labels do not lead to each other"),
    ("classifier", "_n_of_label", put(0, -1), "a label has no examples"),
    ("classifier", "classes_", put((0, 0), 2**31), "classes_ holds a number that is not a character"),
    ("classifier", "classes_", put((0, 0), 0x7A), "classes must be sorted"),
    ("classifier", "forest_.keys.ids", swap(0, 1), "another number than its memory|slot table"),
    ("retriever by value", "expectation_.weights", put((0, 0), np.nan), "a weight of the expectation is not finite"),
    ("retriever by value", "expectation_.features", put(0, 10**6), "has a feature that does not exist"),
    ("retriever by value", "expectation_.table", fill_up, "the table of features holds"),
    ("retriever by value", "expectation_.n_places", put(0, 10**6), "the places in use lie outside"),
    ("retriever by value", "_memories.entries", put(0, 10**6), "a memory is nothing in the forest"),
    ("retriever by value", "_memories.owners", put(0, -1), "leads to no memory"),
    ("retriever by value", "_distinct.numbers", put(0, 10**6), "the forest holds another value"),
    ("retriever of directions", "_values.indices", put(0, 99), "a column that does not exist"),
    ("retriever of directions", "_values.indptr", put(1, 10**6), "the rows of _values overlap"),
]


@needs_jit
@pytest.mark.parametrize(("name", "array", "change", "reason"), FORGERIES)
def test_forged_arrays_are_refused(
    things: dict[str, Any], name: str, array: str, change: Any, reason: str, tmp_path: Path
):
    path = tmp_path / "file"
    path.write_bytes(forged(saved(things[name], path), array, change))
    with pytest.raises(FileFormatError, match=reason):
        load_any(path)


def test_forged_headers_are_refused(things: dict[str, Any], tmp_path: Path):
    path = tmp_path / "file"
    file = saved(things["sparse"], path)

    def refuse(reason: str, change: Callable[[dict[str, Any]], Any], *, lie: bool = False) -> None:
        described, arrays = parsed(file)
        sealed(described, arrays)
        change(described)
        path.write_bytes(sealed(described, arrays, lie=lie))
        with pytest.raises(FileFormatError, match=reason):
            ContextualMemoryTree.load(path)

    refuse("n_trees", lambda header: header["fields"]["options"].update(n_trees=0))
    refuse("alpha", lambda header: header["fields"]["options"].update(alpha="large"))
    refuse("unexpected keyword", lambda header: header["fields"]["options"].update(evil=1))
    refuse("options must be of type dict", lambda header: header["fields"].update(options=[]))
    refuse("there cannot be keys", lambda header: header["fields"].update(n_features=2**40))
    refuse("the key store is too small", lambda header: header["fields"].update(sparse=False))
    refuse("there is no array 'keys.values'", lambda header: header["arrays"][0].update(name="other"))
    refuse("there are two arrays", lambda header: header["arrays"][0].update(name="keys.ids"))
    refuse("an unknown dtype", lambda header: header["arrays"][0].update(dtype="object"))
    refuse("an unknown dtype", lambda header: header["arrays"][0].update(dtype="|O"))
    refuse("number of axes", lambda header: header["arrays"][0].update(shape=[1] * 9))
    refuse("cannot have|cannot be", lambda header: header["arrays"][0].update(shape=[2**47]), lie=True)
    refuse("length of an axis", lambda header: header["arrays"][0].update(shape=[-1]), lie=True)
    refuse("must be of type int, not bool", lambda header: header["arrays"][0].update(shape=[True]), lie=True)
    refuse("cannot lie at", lambda header: header["arrays"][2].update(offset=0), lie=True)
    refuse("size of array", lambda header: header["arrays"][2].update(bytes=2**60), lie=True)


@needs_jit
def test_what_once_broke_loading_does_so_no_more(tmp_path: Path):
    for path in sorted((CORPUS / "load").glob("*")):
        try:
            check(load_any(path))
        except FileFormatError:
            continue


@needs_jit
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
@pytest.mark.parametrize("first", [0, 200])
def test_files_gone_wrong_load_as_valid_trees_or_are_refused(first: int):
    from fuzz_load import outcomes, sound_files

    found = dict(outcomes(range(first, first + 200), 1, 1, sound_files()))
    assert len(found) == 200
    assert {outcome for outcome in found.values() if outcome.startswith("failed")} == set()
    assert {"loaded", "refused"} <= set(found.values())
