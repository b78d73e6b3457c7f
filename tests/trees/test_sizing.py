"""Predictions of the memory that forests need."""

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import needs_jit, text_like

from cmt_numba import ContextualMemoryTree
from cmt_numba.sizing import predict_nbytes


def grown(keys: Any, *, copies: bool = False, **options: Any) -> ContextualMemoryTree:
    tree = ContextualMemoryTree(random_state=0, n_threads=1, **options)
    tree.insert(keys)
    if copies:
        tree.compact()
    return tree


@needs_jit
@pytest.mark.parametrize(
    ("n", "d", "options"),
    [
        (1000, 16, {}),
        (1000, 512, {"n_trees": 4}),
        (3000, 32, {"n_trees": 16, "leaf_multiplier": 1.0}),
        (5000, 64, {"n_trees": 3, "copies": True}),
        (12_000, 16, {"leaf_multiplier": 10.0}),
        (20_000, 16, {"n_trees": 2, "leaf_multiplier": 2.0}),
    ],
)
def test_dense_keys(n: int, d: int, options: dict[str, Any], rng: np.random.Generator):
    tree = grown(rng.standard_normal((n, d), dtype=np.float32), **options)
    assert predict_nbytes(n, d, **options) == pytest.approx(tree.nbytes, rel=0.1)


@needs_jit
@pytest.mark.parametrize(
    ("n", "d", "n_words", "options"),
    [
        (2000, 5000, 12, {"n_trees": 4, "leaf_multiplier": 1.0}),
        (6000, 3000, 12, {}),
        (6000, 100_000, 8, {"leaf_multiplier": 10.0}),
        (10_000, 20_000, 12, {"n_trees": 2}),
    ],
)
def test_sparse_keys(n: int, d: int, n_words: int, options: dict[str, Any]):
    keys = text_like(n, d, n_words, seed=6)
    taken = grown(keys, **options).nbytes
    assert predict_nbytes(n, sample=keys[:1000], **options) == pytest.approx(taken, rel=0.1)
    assert predict_nbytes(n, d, cells_per_key=keys.nnz / n, **options) == pytest.approx(taken, rel=0.15)


@needs_jit
def test_a_sample_predicts_equally_common_features(rng: np.random.Generator):
    keys = scipy.sparse.random_array((6000, 2000), density=0.01, format="csr", random_state=rng, dtype=np.float32)
    taken = grown(keys).nbytes
    assert predict_nbytes(6000, sample=keys[:1000]) == pytest.approx(taken, rel=0.1)
    assert predict_nbytes(6000, 2000, cells_per_key=20) < 0.9 * taken  # real words would have more features in common


@needs_jit
@pytest.mark.parametrize("sparse", [False, True])
def test_many_small_inserts_take_up_to_a_quarter_more(rng: np.random.Generator, sparse: bool):
    keys = text_like(4000, 3000, 10, seed=6) if sparse else rng.standard_normal((4000, 16), dtype=np.float32)
    tree = ContextualMemoryTree(random_state=0)
    for first in range(0, 4000, 20):
        tree.insert(keys[first : first + 20])
        if first % 1000 == 980:
            n = first + 20
            foretold = predict_nbytes(n, sample=keys[:1000]) if sparse else predict_nbytes(n, 16)
            assert 0.9 * foretold <= tree.nbytes <= 1.25 * foretold


def test_scorers_and_copies_take_the_predicted_memory():
    assert predict_nbytes(5000, 64, scorer=True) == predict_nbytes(5000, 64) + 8 * 64
    copied, plain = (predict_nbytes(5000, 64, n_trees=3, copies=copies) for copies in (True, False))
    assert copied == plain + 2 * 5000 * (64 + 8)
    assert predict_nbytes(0, 64) == 0


def test_predictions_from_small_samples():
    """Predictions work for samples of few features or rows, and for few memories."""
    nothing = scipy.sparse.csr_array((3, 5), dtype=np.float32)
    assert predict_nbytes(1000, sample=nothing) > 1000 * (8 + 16)
    assert predict_nbytes(1000, sample=scipy.sparse.csr_array(np.eye(1, 5))) > predict_nbytes(1000, sample=nothing)
    assert predict_nbytes(1000, 1, cells_per_key=1.0) > 1000 * (8 + 16 + 8)
    assert 0 < predict_nbytes(1, 3) < predict_nbytes(2, 3) < predict_nbytes(20, 3)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "reason"),
    [
        ((10,), {}, TypeError, "n_features must be an integer"),
        ((-1, 3), {}, ValueError, "n_memories must be between"),
        ((10, 3), {"n_trees": 0}, ValueError, "n_trees must be between"),
        ((10, 3), {"leaf_multiplier": 0.0}, ValueError, "leaf_multiplier must be above"),
        ((10, 3), {"cells_per_key": 4.0}, ValueError, "cells_per_key must be between"),
        ((10, 3), {"sample": np.eye(4)}, ValueError, "X must have 3 features"),
    ],
)
def test_what_is_refused(arguments: Any, options: dict[str, Any], error: type[Exception], reason: str):
    with pytest.raises(error, match=reason):
        predict_nbytes(*arguments, **options)


def test_a_prediction_does_not_change_the_sample(sparse_keys: Any):
    before = pickle.dumps(sparse_keys)
    predict_nbytes(1000, sample=sparse_keys)
    assert pickle.dumps(sparse_keys) == before
