"""Refused files: files of other kinds, damaged files, forged files."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CORPUS, needs_jit
from forged import with_array
from internals import forest_room
from mutations import MAGIC, PREAMBLE, parsed, sealed
from saved import check, load_any, saved

from cmt_numba import CMTRetriever, ContextualMemoryTree
from cmt_numba._forest import COUNT
from cmt_numba._kernels import LONGEST, N_MEMORIES, NEXT_ID
from cmt_numba._linear import CELLS_WANTED, FREE_TABLES, MODELS_END, TABLES_END
from cmt_numba.persistence import FORMAT_VERSION, FileFormatError


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"", "is not a cmt-numba file"),
        (b"7 12:1 40:0.5\n", "is not a cmt-numba file"),
        (b"PK\x03\x04" + bytes(100), "is not a cmt-numba file"),
        (b"\x93cmt-numba\r\n\x1a\n", "is truncated"),
        (PREAMBLE.pack(MAGIC, FORMAT_VERSION, 0, 2**40), "its header has an invalid length: 1099511627776"),
        (PREAMBLE.pack(MAGIC, FORMAT_VERSION, 0, 100), "is truncated"),
        (PREAMBLE.pack(MAGIC, FORMAT_VERSION, 0, 2) + b"{}", "its header is damaged"),
        (PREAMBLE.pack(MAGIC, 99, 0, 0), "has format version 99, .* reads version .*; load it with a later"),
        (PREAMBLE.pack(MAGIC, 5, 0, 0), "has format version 5, .* make the file again from its data"),
        (sealed([], []), "the header must be of type dict"),
        (
            sealed({"kind": "x", "library": "1", "fields": {}, "arrays": []}, []),
            "must contain an object of type .*, got 'x'",
        ),
        (
            sealed({"kind": "ContextualMemoryTree", "library": "1", "fields": {}, "arrays": []}, []),
            "options is missing",
        ),
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
    with pytest.raises(FileFormatError, match="of type ContextualMemoryTree, got 'CMTClassifier'"):
        ContextualMemoryTree.load(path)
    with pytest.raises(FileFormatError, match="of type CMTRetriever, got"):
        CMTRetriever.load(path)
    with pytest.raises(OSError, match="No such file"):
        CMTRetriever.load(tmp_path / "none")
    with pytest.raises(OSError, match="directory"):
        CMTRetriever.load(tmp_path)


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
    """Move an entry to a cell that searches for it do not visit."""
    empty = np.flatnonzero((table == -1) & (np.roll(table, 1) == -1))[0]
    full = np.flatnonzero(table != -1)[0]
    table[empty], table[full] = table[full], -1


FORGERIES: dict[str, list[tuple[str, Any, str]]] = {
    "dense": [
        ("state.keys.totals", put(N_MEMORIES, 2**40), "the number of memories, 1099511627776"),
        ("state.keys.totals", put(NEXT_ID, 3), "the next id is invalid: 3"),
        ("state.keys.ids", put(0, -1), "an id is out of range"),
        ("state.keys.ids", put(0, 2**40), "an id is out of range"),
        ("state.keys.ids", lambda ids: put(0, ids[1])(ids), "two entries for one key"),
        ("state.keys.slot_table", fill_up, "the slot table must have"),
        ("state.keys.slot_table", hide, "the slot table has an entry that searches cannot find"),
        ("state.keys.values", put(3, np.nan), "a key is not of length 1"),
        ("state.keys.values", put(3, 1e30), "a key is not of length 1"),
        ("state.counters", put((0, forest_room.state.ROOT), 2**31), "a link refers to a node that does not exist"),
        ("state.counters", put((0, forest_room.state.ROOT), -(2**62)), "a link refers to a leaf that does not exist"),
        ("state.counters", put((0, MODELS_END), 2**31), "the end of the models is out of range"),
        ("state.counters", put((0, COUNT), 1), "contains 1 of 52 memories"),
        ("state.counters", put((0, forest_room.state.FREE_NODE), 0), "used twice|is broken"),
        ("state.nodes", put((0, 0, 0), 0, "child"), "a node or leaf has the wrong parent"),
        ("state.nodes", put((0, 0, 1), 2**31 - 1, "child"), "a link refers to a node that does not exist"),
        ("state.nodes", put((0, 0, 0), -(2**31), "child"), "a link refers to a leaf that does not exist"),
        ("state.nodes", put((0, 0, 0), 3, "below"), "a node's counts are wrong"),
        ("state.nodes", put((0, 0), np.nan, "bias"), "a model's bias is not finite"),
        ("state.nodes", put((0, 0), -1.0, "bias_square"), "bias_square is negative"),
        ("state.nodes", put((0, 0), -1, "mistakes"), "router mistakes of a node is wrong"),
        ("state.nodes", put((0, 0), -1, "departed"), "removed memories of a node is wrong"),
        ("state.nodes", put((0, 0), 7, "table_bits"), "a dense model has a table"),
        ("state.leaves", put((0, 0), 2**31 - 1, "size"), "a leaf holds more than"),
        ("state.leaves", put((0, 0), -1, "size"), "a leaf holds more than"),
        ("state.members", put((0, 0, 0), 2**31 - 1), "not every memory is in exactly one leaf"),
        ("state.members", put((0, 0, 0), -7), "not every memory is in exactly one leaf"),
        ("state.leaf_of", put((0, 0), 77), "has the wrong leaf"),
        ("state.weights.dense", put((0, 0), np.nan), "weight is not finite"),
        ("state.weights.dense", put((0, 5), -3.0), "sum of squares is negative"),
        ("state.scorer.theta", put(0, np.inf), "the scorer has a weight that is not finite"),
        ("evidence.sums", put(9, np.nan), "the evidence of rewards is invalid"),
        ("evidence.groups", put((0, 1), -1.0), "the evidence of rewards is invalid"),
        ("evidence.offsets", put(1, -4), "the cells of waiting rows are invalid"),
        ("evidence.rewards", put((0, 0), 7.0), "waiting rewards must be between 0 and 1"),
    ],
    "sparse": [
        ("evidence.indices", put(0, -1), "the cells of waiting rows are invalid"),
        ("evidence.offsets", put(1, 2**40), "the cells of waiting rows are invalid"),
        ("state.keys.totals", put(LONGEST, 2**50), "the longest key has an invalid number of cells: 1125899906842624"),
        ("state.keys.totals", put(LONGEST, 1), "more cells than the recorded longest"),
        ("state.keys.values", put(3, np.inf), "a key is not of length 1"),
        ("state.keys.indices", put(0, -1), "a feature that does not exist"),
        ("state.keys.indices", put(0, 2**31 - 1), "a feature that does not exist"),
        ("state.keys.indices", swap(0, 1), "not in ascending order"),
        ("state.keys.spans", put((0, 0), -5), "lies outside|is wrong|shares|ends before"),
        ("state.keys.spans", put((0, 1), 2**60), "lies outside"),
        ("state.keys.spans", swap((0, 1), (1, 1)), "before it starts|share a cell|longest"),
        ("state.counters", put((0, CELLS_WANTED), 2**40), "an insert is unfinished"),
        ("state.counters", put((0, TABLES_END), 2**40), "the end of the tables is out of range"),
        ("state.counters", put((0, FREE_TABLES + 4), 0), "a list of free tables is invalid"),
        ("state.nodes", put((0, 0), 40, "table_bits"), "a table has an invalid size"),
        ("state.nodes", put((0, 0), 2**30, "table_start"), "overlap or leave a gap"),
        ("state.nodes", put((0, 0), 99, "table_used"), "the feature count of a table is wrong"),
        ("state.weights.table", put((0, 0), 10**6, "feature"), "miscounts its features|that does not exist"),
    ],
    "bounded": [
        ("order", put(3, 2**30), "does not list every memory"),
        ("order", put(3, -1), "does not list every memory"),
    ],
    "classifier": [
        ("model.index.head.labels", put((0, 0), np.inf, "bias"), "the head: a model's bias is not finite"),
        ("model.index.head.counters", put((0, MODELS_END), 3), "the head must have .* scorers, one per label"),
        ("model.index.head.gaps", put(0, -1.0), "a gap is negative"),
        ("model.index.examples.next_of", put(0, 0), "a list of examples is invalid"),
        ("model.index.examples.next_of", put(40, 50), "a list of examples is invalid"),
        ("model.index.examples.first_of", put(0, -2), "a list of examples is invalid"),
        ("model.index.examples.first_of", put(0, -1), "an example must be in exactly one list"),
        ("model.index.examples.label_of", put(0, 50), "an example has a label that does not exist"),
        ("model.index.examples.keys.ids", swap(0, 1), "another id than its place|slot table"),
        (
            "model.label_of_class",
            put(0, 99),
            "the map between classes and labels refers to an entry that does not exist",
        ),
        ("model.class_of_label", swap(0, 1), "the maps between classes and labels are not inverse"),
        ("model.index.n_of_label", put(0, -1), "a label has no examples"),
        ("model.classes", put((0, 0), 2**31), "classes contains a number that is not a Unicode character"),
        ("model.classes", put((0, 0), 0x7A), "classes must be sorted"),
    ],
    "sparse classifier": [
        ("model.index.head.digest.features", put(0, 999), "the digest has a feature that does not exist"),
        ("model.index.head.digest.offsets", put(1, -9), "the digest's lists overlap"),
        ("model.index.head.postings.labels", put(0, 999), "the index has a label that does not exist"),
        ("model.index.head.postings.offsets", put(5, 2**40), "the index's lists overlap"),
    ],
    "multilabel classifier": [
        ("model.index.head.common.labels", put(0, 999), "a common label does not exist"),
        ("model.index.head.common.labels", lambda labels: put(0, labels[1])(labels), "is listed more than once"),
        ("model.index.head.common.places", put(0, 999), "contains a label that is not common"),
    ],
    "pair classifier": [
        ("model.index.scales.means", put(0, 1e300), "must have a scale that rows can have"),
        ("model.index.scales.squares", put(0, -1.0), "must have a scale that rows can have"),
        ("model.index.scales.center", put(0, np.nan), "must have a scale that rows can have"),
        ("model.index.scales.inverse", put(0, 1e300), "must have a scale that rows can have"),
    ],
    "retriever by value": [
        ("model.by_value.weights", put((0, 0), np.nan), "the map must be finite"),
        ("model.by_value.features", put(0, 10**6), "has a feature that does not exist"),
        ("model.by_value.features", lambda features: put(0, features[1])(features), "must be distinct"),
        ("model.memories.entries", put(0, 10**6), "a memory has no entry in the index"),
        ("model.memories.digests", lambda digests: put(0, digests[1])(digests), "values in the index must be distinct"),
    ],
    "retriever of directions": [
        ("model.memories.values.indices", put(0, 99), "a column that does not exist"),
        ("model.memories.values.indptr", put(1, 10**6), "the rows of model.memories.values overlap"),
    ],
}


@needs_jit
@pytest.mark.parametrize(
    ("name", "array", "change", "reason"), [(name, *row) for name, rows in FORGERIES.items() for row in rows]
)
def test_forged_arrays_are_refused(
    things: dict[str, Any], name: str, array: str, change: Any, reason: str, tmp_path: Path
):
    path = tmp_path / "file"
    path.write_bytes(with_array(saved(things[name], path), array, change))
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
    refuse("n_reroutes must be between 0 and", lambda header: header["fields"]["options"].update(n_reroutes=10**9))
    refuse("unexpected keyword", lambda header: header["fields"]["options"].update(evil=1))
    refuse("options must be a mapping", lambda header: header["fields"].update(options=[]))
    refuse("keys must have 1 to", lambda header: header["fields"]["state"].update({"parameters.n_features": 2**40}))
    refuse("the key store is too small", lambda header: header["fields"]["state"].update({"parameters.sparse": False}))
    refuse("parameters that the options say", lambda header: header["fields"]["options"].update(alpha=0.5))
    refuse("the array 'keys.values' is missing", lambda header: header["arrays"][0].update(name="other"))
    refuse("two arrays have the name", lambda header: header["arrays"][0].update(name="state.keys.ids"))
    refuse("an unknown dtype", lambda header: header["arrays"][0].update(dtype="object"))
    refuse("an unknown dtype", lambda header: header["arrays"][0].update(dtype="|O"))
    refuse("number of axes", lambda header: header["arrays"][0].update(shape=[1] * 9))
    refuse("is truncated", lambda header: header["arrays"][0].update(shape=[2**47]), lie=True)
    refuse("length of an axis", lambda header: header["arrays"][0].update(shape=[-1]), lie=True)
    refuse("must be of type int, got bool", lambda header: header["arrays"][0].update(shape=[True]), lie=True)


@needs_jit
def test_files_that_once_broke_loading_are_refused(tmp_path: Path):
    for path in sorted((CORPUS / "load").glob("*")):
        try:
            check(load_any(path))
        except FileFormatError:
            continue


@needs_jit
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_damaged_files_load_as_valid_trees_or_are_refused():
    from fuzz_load import outcomes, sound_files

    found = dict(outcomes(range(200), 1, 1, sound_files()))
    assert len(found) == 200
    assert {outcome for outcome in found.values() if outcome.startswith("failed")} == set()
    assert {"loaded", "refused"} <= set(found.values())
