"""Files of every kind: objects go on as those saved, and other files are refused."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from conftest import needs_jit
from file_kinds import MAKERS, in_file, loader, use
from forged import check_forgeries, with_array, with_field

from cmt_numba.bandits import Policy, load_policy
from cmt_numba.persistence import FileFormatError
from cmt_numba.text import BM25Vectorizer, FastTextClassifier, SubwordVectors


def assert_same(one: list[Any], other: list[Any]) -> None:
    for expected, found in zip(one, other, strict=True):
        np.testing.assert_array_equal(found, expected)


# Files hold the symbols of an alphabet, and the features of a model of rewards by name or as arrays.
NOT_IN_FILES = {"random_state", "encoder", "alphabet", "model", "features", "vectorizer"}


@needs_jit
@pytest.mark.parametrize("name", MAKERS, scope="module")  # tests of a kind follow each other: see in_file
def test_loaded_objects_and_copies_go_on_as_those_saved(name: str, tmp_path: Path):
    thing, path = MAKERS[name](), tmp_path / "thing"
    thing.save(path)
    before = path.read_bytes()
    others = [loader(thing)(path), pickle.loads(pickle.dumps(thing)), copy.deepcopy(thing)]
    if isinstance(thing, BM25Vectorizer | SubwordVectors | FastTextClassifier):
        others.append(loader(thing)(path, mmap=True))
    if isinstance(thing, Policy):
        others.append(load_policy(path))
    if hasattr(thing, "get_params"):
        params, loaded = thing.get_params(False), others[0].get_params(False)
        assert {name for name in params if params[name] != loaded[name]} <= NOT_IN_FILES
    said = use(thing)
    for other in others:
        assert_same(use(other), said)
    assert path.read_bytes() == before


@needs_jit
@pytest.mark.parametrize("name", MAKERS, scope="module")  # tests of a kind follow each other: see in_file
def test_files_cut_off_and_of_other_kinds_are_refused(name: str, tmp_path: Path):
    (kind, whole, load), path = in_file(name), tmp_path / "thing"
    path.write_bytes(in_file("plain distance" if name in ("linucb", "new") else "linucb")[1])
    with pytest.raises(FileFormatError, match=f"of type {kind.__name__}, got '"):
        load(path)
    load = load_policy if issubclass(kind, Policy) else load
    for part, message in ((whole[:-1], "truncated"), (whole[:40], "truncated"), (b"PK" + whole, "not a cmt-numba")):
        path.write_bytes(part)
        with pytest.raises(FileFormatError, match=message):
            load(path)


INVALID_ARRAYS: list[tuple[str, str, Any, str]] = [
    ("linucb", "ids", lambda ids: ids * 0, "distinct"),
    ("linucb", "model.inverses", lambda inverses: inverses[:, 1:], "inverses must have dtype"),
    ("linucb", "model.shared", lambda shared: np.full(0, 1, np.float32), "shared must have"),
    ("linucb", "model.offsets", lambda offsets: offsets * np.nan, "finite"),
    ("linucb", "model.counts", lambda counts: counts - 100, "negative"),
    ("argmax by contexts", "known", lambda known: known[::-1], "ascend"),
    ("argmax by contexts", "seen.actions", lambda actions: actions - 50, "between 0 and"),
    ("argmax by contexts", "seen.lengths", lambda lengths: lengths + 1, "must have at least one action"),
    ("argmax by contexts", "seen.contexts", lambda contexts: contexts * np.nan, "between"),
    ("argmax by contexts", "seen.contexts", lambda contexts: contexts[:, :1], "shape"),
    ("argmax by contexts", "model.weights", lambda weights: weights[:, :-1], "shape"),
    ("argmax by contexts", "model.weights", lambda weights: weights * np.nan, "finite"),
    ("sparse bandit", "pending.ids", lambda ids: ids[::-1], "ascend"),
    ("sparse bandit", "pending.rows.indices", lambda indices: indices + np.int32(8), "indices"),
    ("sparse bandit", "pending.rows.offsets", lambda offsets: np.append(offsets[:-1], 0), "must have up to"),
    ("sparse bandit", "pending.rows.values", lambda values: values[:-1], "match the number of values"),
    ("sparse bandit", "pending.actions", lambda actions: actions - 50, "between 0 and"),
    ("sparse bandit", "state.cells", lambda cells: cells[:-1], "cells must have dtype"),
    ("sparse bandit", "state.cells", lambda cells: cells - 1, "negative"),
    ("sparse bandit", "keys.actions", lambda actions: actions[1:], "every key must have an action"),
    ("sparse bandit", "state.target", lambda target: target[1:], "target must have"),
    ("sparse bandit", "feedback.weights", lambda weights: weights[1:], "weights does not fit"),
    ("learned distance", "costs.pairs", lambda pairs: pairs[1:], "must"),
    ("learned distance", "costs.pairs", lambda pairs: pairs + np.float32(1.0), "must"),
    ("learned distance", "costs.pairs", lambda pairs: pairs * np.float32(np.nan), "must"),
    ("learned distance", "costs.pairs", np.triu, "must"),
    ("learned distance", "costs.swaps", lambda swaps: swaps[:2, :2], "must"),
    ("learned distance", "costs.swaps", lambda swaps: -swaps, "must"),
    ("learned distance", "costs.openings", lambda openings: np.full(1, 1.0, np.float32), "must"),
    ("learned distance", "costs.openings", lambda openings: np.array([1.0, 2.0], np.float32), "must"),
    ("learned distance", "costs.ends", lambda ends: np.array([-1.0], np.float32), "must"),
    ("learned distance", "alphabet", lambda alphabet: alphabet[:-1], "must|not valid"),
    ("tree of learned distances", "ids", lambda ids: ids[::-1], "must"),
    ("tree of learned distances", "ids", lambda ids: ids + 9, "must"),
    ("tree of learned distances", "ids", lambda ids: ids[1:], "must"),
    ("tree of learned distances", "sequences.symbols", lambda symbols: symbols + np.int32(2), "must"),
    ("tree of learned distances", "sequences.offsets", lambda offsets: offsets[::-1], "must"),
    ("tree of learned distances", "costs.pairs", lambda pairs: pairs[:0], "must"),
    ("memory", "owners", lambda owners: owners + 9, "must"),
    ("memory", "owners", lambda owners: owners - 9, "must"),
    ("memory", "owners", lambda owners: owners[1:], "must"),
    ("landmarks by cosine", "index.ids", lambda ids: ids * 0, "distinct"),
    ("dense reranker", "log.X", lambda array: array[:-1], "must"),
    ("dense reranker", "log.X", lambda array: array * np.nan, "must"),
    ("sparse reranker", "log.rewards", lambda rewards: rewards + 1.0, "must"),
    ("sparse reranker", "log.sizes", lambda sizes: sizes + 1, "must"),
    ("sparse reranker", "vectorizer.vocabulary", lambda array: array[:-1], "not valid JSON"),
]
INVALID_FIELDS: list[tuple[str, str, Any, str]] = [
    ("linucb", "n_features", 10**9, "n_features must be"),
    ("linucb", "options", {"alpha": -1.0}, "alpha must be"),
    ("linucb", "generator", {}, "state"),
    ("argmax by contexts", "tau", 2.0, "tau"),
    ("sparse bandit", "width", 3, "."),
    ("sparse bandit", "pending", {}, "."),
    ("sparse bandit", "turn", None, "."),
    ("sparse bandit", "sparse", 1, "."),
    ("sparse bandit", "n_rewards", -1, "."),
    ("bm25", "parameters.token_pattern", "(", "."),
    ("bm25", "parameters.token_pattern", "(a)(b)", "."),
    ("bm25", "parameters.stop_words", [[]], "."),
    ("text classifier with an encoder", "model.dense.classifier.model", None, "."),
    ("text classifier with an encoder", "model.dense.classifier.parameters.max_examples", 3, "."),
    ("text classifier with an encoder", "model.dense.classifier.n_features_in", 2, "."),
]


@needs_jit
@pytest.mark.parametrize(
    ("change", "name", "what", "value", "message"),
    [(with_array, *row) for row in INVALID_ARRAYS] + [(with_field, *row) for row in INVALID_FIELDS],
)
def test_invalid_contents_are_refused(change: Any, name: str, what: str, value: Any, message: str, tmp_path: Path):
    (_, file, load), path = in_file(name), tmp_path / "thing"
    path.write_bytes(change(file, what, value))
    with pytest.raises(FileFormatError, match=message):
        load(path)


APART: dict[str, tuple[str, ...]] = {
    # Parts of a sparse bandit that are those of a dense one, whose file is much smaller.
    "sparse bandit": (
        *("ids", "model.", "state.", "feedback.t", "feedback.figures", "feedback.weights", "options", "n_rewards"),
        *("turn", "by_context.", "pending.max_decisions", "pending.next_id"),
    ),
    # Forge only what an encoder adds: loading a CMTClassifier for every forgery is slow.
    "text classifier with an encoder": ("dense.", "sums.", "vectors.", "stored.t", "stored.i", "model"),
}
# Parts that have tests of their own: trees of bandits and memories, distances, vectorizers, names of tokenizers.
OF_OTHERS = ("by_context.tree.", "retriever", "distance", "metric.", "vectorizer", "tokenizer")
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
