"""Teaching of routers and training of the head: kernels compared with plain Python, and their effects."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import FORMS, needs_jit, text_like
from failures import failing
from internals import forest_of, forest_room, heads_room, model_of, state_of, trained_head

from cmt_numba import CMTClassifier, ContextualMemoryTree
from cmt_numba._forest import NODES_END, State
from cmt_numba._heads import (
    HEAD_LOSSES,
    CandidateSearch,
    Head,
    HeadLesson,
    HeadParameters,
    SearchEffort,
    learn_labels,
    margin_wanted,
    measure_gaps,
    new_duals,
    new_head,
    new_shortlists,
    score_labels,
    with_digest,
    with_labels,
    without_digest,
)
from cmt_numba._jit import empty, inner, kernel, release
from cmt_numba._kernels import NONE, RIGHT, row_of
from cmt_numba._postings import Digest, LabelAnswers, Postings, Questions, all_of, list_by_feature, meet_labels
from cmt_numba._validation import check_rows

ALL_LABELS = SearchEffort(n_listed=10**6, n_met=10**6)


def weights_of(state: Any, t: int, node: int) -> np.ndarray:
    """Return the weights of a model by feature, read from its arrays."""
    d = state.parameters.n_features
    if not state.parameters.sparse:
        return state.weights.dense[t, node * 2 * d : node * 2 * d + d].copy()
    weights = np.zeros(d, np.float32)
    record = state.models.records[t, node]
    start, bits = int(record["table_start"]) << 4, int(record["table_bits"])
    if bits:
        cells = state.weights.table[t, start : start + (1 << bits)]
        cells = cells[cells["feature"] != NONE]
        weights[cells["feature"]] = cells["weight"]
    return weights


def path_to(state: State, t: int, leaf: int) -> list[tuple[int, int]]:
    """Return the nodes above a leaf, each with the side of the leaf."""

    def search(place: int) -> list[tuple[int, int]] | None:
        if place < 0:
            return [] if ~place == leaf else None
        for side in (0, 1):
            below = search(int(state.nodes["child"][t, place, side]))
            if below is not None:
                return [(place, side), *below]
        return None

    path = search(int(state.counters[t, forest_room.state.ROOT]))
    assert path is not None
    return path


# Routers


@FORMS
def test_taught_routers_match_plain_python(form: Any, rng: np.random.Generator):
    keys, row = rng.normal(size=(12, 6)), rng.normal(size=6)
    row /= np.linalg.norm(row)
    tree = ContextualMemoryTree(leaf_multiplier=0.5, n_reroutes=0, random_state=1)
    tree.insert(form(keys))
    state, rate = state_of(tree), 2.0 / (1.0 + np.abs(row).sum())
    path = path_to(state, 0, int(state.leaf_of[0, 7]))
    assert len(path) > 1
    tree.teach(form(row[None]), [7], afresh=True)
    for node, side in path:
        # The first AdaGrad step changes each weight and the bias by the rate, but the margin by at most 1.
        label = 1.0 if side == RIGHT else -1.0
        step = label * rate * np.sign(row)
        move = step @ row + label * rate
        shrink = min(1.0, 1.0 / abs(move))
        np.testing.assert_allclose(weights_of(state_of(tree), 0, node), shrink * step, rtol=1e-4)
        assert state_of(tree).nodes[0, node]["bias"] == pytest.approx(shrink * label * rate, rel=1e-4)
    others = set(range(int(state.counters[0, NODES_END]))) - {node for node, _ in path}
    assert all(not weights_of(state_of(tree), 0, node).any() for node in others)


@FORMS
def test_teaching_leads_to_dissimilar_keys(form: Any, rng: np.random.Generator):
    """Taught routers find the memories of rows that share no feature with their keys."""
    keys, rows = np.zeros((40, 80)), np.zeros((40, 80))
    keys[:, :40] = rows[:, 40:] = np.eye(40)
    tree = ContextualMemoryTree(n_trees=2, leaf_multiplier=0.5, random_state=0)
    ids = tree.insert(form(keys))
    before = np.mean([i in found for i, found in zip(ids, tree.query(form(rows), k=20).ids, strict=True)])
    tree.teach(form(rows), ids, n_passes=5)
    after = np.mean([i in found for i, found in zip(ids, tree.query(form(rows), k=20).ids, strict=True)])
    assert before < 0.5
    assert after == 1.0
    tree.check_invariants()


def test_teaching_continues_after_tables_grow():
    """A tree whose tables grow during teaching equals a tree with enough capacity from the start."""
    keys, rows = text_like(30, 500, 15, seed=3), text_like(60, 500, 15, seed=4)
    ids = np.arange(60) % 30

    def taught(room: int) -> ContextualMemoryTree:
        tree = ContextualMemoryTree(n_trees=2, leaf_multiplier=0.5, random_state=0)
        tree.insert(keys)
        state = state_of(tree)
        if room:
            table = np.zeros((2, state.weights.table.shape[1] + room), state.weights.table.dtype)
            table[:, : state.weights.table.shape[1]] = state.weights.table
            forest_of(tree).state = state._replace(weights=state.weights._replace(table=table))
        tree.teach(rows, ids, n_passes=2)
        tree.check_invariants()
        return tree

    grown, roomy = taught(0), taught(100_000)
    for t in range(2):
        for node in range(int(state_of(grown).counters[t, NODES_END])):
            np.testing.assert_array_equal(weights_of(state_of(grown), t, node), weights_of(state_of(roomy), t, node))


def test_teaching_after_memory_ran_out():
    """A call interrupted in the middle of a path leaves no state for the next call."""
    keys, rows = text_like(60, 500, 15, seed=3), text_like(200, 500, 15, seed=4)
    tree = ContextualMemoryTree(n_trees=2, leaf_multiplier=0.5, random_state=0)
    tree.insert(keys)
    with failing("_forest.with_more"):
        tree.teach(rows, np.arange(200) % 60)
    ids = tree.ids
    tree.remove(ids[30:])
    tree.teach(keys[:30], ids[:30])
    tree.check_invariants()


def test_teaching_forgets_only_when_asked_to(dense_keys: np.ndarray):
    tree = ContextualMemoryTree(leaf_multiplier=0.5, random_state=0)
    ids = tree.insert(dense_keys)
    consistent = np.mean(tree.query(dense_keys).ids[:, 0] == ids)
    tree.teach(dense_keys[:1], ids[:1])
    assert np.mean(tree.query(dense_keys).ids[:, 0] == ids) > consistent / 2
    tree.teach(dense_keys[:1], ids[:1], afresh=True)
    n_nodes = int(state_of(tree).counters[0, NODES_END])
    forgotten = [node for node in range(n_nodes) if not weights_of(state_of(tree), 0, node).any()]
    assert len(forgotten) > n_nodes / 2


# Head


def trained(
    form: Any,
    loss: str,
    rows: Any,
    labels: Any,
    n_passes: int,
    n: int = 0,
    n_threads: int = 1,
    learn: Any = learn_labels,
) -> tuple[Head, Questions]:
    """Return a head with one label per feature, whose scorer starts as the unit vector."""
    d = rows.shape[1]
    checked = check_rows(form(rows))
    head = new_head(HeadParameters(d, checked.sparse, HEAD_LOSSES[loss], 1.0))
    head = with_labels(head, check_rows(form(np.eye(d))))
    questions, order = all_of(checked), np.arange(len(rows))
    duals, shortlists = new_duals(1.0, np.bincount(labels, minlength=d)[labels]), new_shortlists(labels)
    search = CandidateSearch(ALL_LABELS, n_threads=n_threads)
    lesson = HeadLesson(questions, order, labels, shortlists, True)
    measure_gaps(search, head, lesson, duals, n)
    for n_pass in range(n_passes):
        head = learn(search, head, lesson._replace(searching=n_pass == 0), duals)
    return head, questions


def examples_of(rng: np.random.Generator, n: int = 30, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rows = np.abs(rng.normal(size=(n, d)))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32), rng.integers(0, d, n)


in_blocks = partial(heads_room.multiclass_svm.ascend_in_blocks, rows_at_once=7)


@FORMS
@pytest.mark.parametrize("learn", [learn_labels, in_blocks], ids=["in turn", "in blocks"])
def test_mira_matches_plain_python(form: Any, learn: Any, rng: np.random.Generator):
    rows, labels = examples_of(rng)
    head, *_ = trained(form, "mira", rows, labels, n_passes=3, learn=learn)
    W, n_of_label = np.eye(5), np.bincount(labels)
    gaps = []
    for x, right in zip(rows, labels, strict=True):
        scores = W @ x
        gaps.append(abs(scores[right] - np.delete(scores, right).max()))
    margin = margin_wanted(head)
    assert margin == pytest.approx(1.4 * np.mean(gaps), rel=1e-5)
    held: list[dict[int, tuple[int, float]]] = [{} for _ in rows]  # held[row][place]: a competitor and its weight
    for _ in range(3):
        for x, right, pairs in zip(rows, labels, held, strict=True):
            for _ in range(3):
                best = int(np.where(np.arange(5) == right, -np.inf, W @ x).argmax())
                places = [place for place, (competitor, _) in pairs.items() if competitor == best]
                first = places[0] if places else max(set(range(8)) - set(pairs))
                changed = False
                for at in [first, *(place for place in range(8) if place != first)]:
                    if at != first and (at not in pairs or pairs[at][0] == best):
                        continue
                    competitor = best if at == first else pairs[at][0]
                    weight = pairs.get(at, (competitor, 0.0))[1]
                    short = margin - (W[right] @ x - W[competitor] @ x)
                    softness = (n_of_label[right] + 4) / (3 * n_of_label[right])
                    short -= softness * sum(weight for _, weight in pairs.values())
                    change = max(short / (2 + softness), -weight)
                    if abs(change) >= 0.001 * margin:
                        W[right] += change * x
                        W[competitor] -= change * x
                        pairs[at] = (competitor, weight + change)
                        if pairs[at][1] <= 1e-7:
                            del pairs[at]
                        changed = True
                if not changed:
                    break
    for label in range(5):
        np.testing.assert_allclose(weights_of(head, 0, label), W[label], atol=2e-3)


@needs_jit  # plain Python runs on one thread
@FORMS
def test_blocks_teach_the_same_on_any_number_of_threads(form: Any, rng: np.random.Generator):
    rows, labels = examples_of(rng, n=60, d=20)
    one, two, three = (trained(form, "mira", rows, labels, 2, 0, n, in_blocks)[0] for n in (1, 2, 3))
    for other in (two, three):
        for label in range(20):
            np.testing.assert_array_equal(weights_of(other, 0, label), weights_of(one, 0, label))
        np.testing.assert_array_equal(other.counters, one.counters)
        np.testing.assert_array_equal(other.labels, one.labels)


@pytest.mark.parametrize(("loss", "factor"), [("mira", 10.0), ("softmax", 1.0)])
def test_the_initial_scorer_counts_less_with_many_examples(loss: str, factor: float, rng: np.random.Generator):
    data = examples_of(rng)
    few, many = (margin_wanted(trained(np.asarray, loss, *data, 0, n)[0]) for n in (50, 500))
    softness = new_duals(2.0, np.array([500.0])).softness[0]
    assert (many, softness) == (pytest.approx(factor * few), pytest.approx(504 / 500 / 2.4))


@FORMS
def test_softmax_matches_plain_python(form: Any, rng: np.random.Generator):
    rows, labels = examples_of(rng)
    head, *_ = trained(form, "softmax", rows, labels, n_passes=2)
    steepness = 12.0 / margin_wanted(head)
    W, bias = np.eye(5), np.zeros(5)
    squares, bias_squares = np.zeros((5, 5)), np.zeros(5)
    for _ in range(2):
        for x, right in zip(rows, labels, strict=True):
            logits = steepness * (W @ x + bias)
            slopes = np.exp(logits - logits.max())
            slopes /= slopes.sum()
            slopes[right] -= 1
            rate = 1.0 / steepness / (1.0 + np.abs(x).sum())
            for label in np.flatnonzero(np.abs(slopes) >= 0.01):
                gradient = slopes[label] * x
                squares[label] += gradient**2
                bias_squares[label] += slopes[label] ** 2
                W[label] -= rate * gradient / np.sqrt(squares[label] + 1e-20)
                bias[label] -= rate * slopes[label] / np.sqrt(bias_squares[label])
    for label in range(5):
        np.testing.assert_allclose(weights_of(head, 0, label), W[label], atol=2e-3)
        assert head.labels[0, label]["bias"] == pytest.approx(bias[label], abs=2e-3)


@FORMS
@pytest.mark.parametrize("loss", HEAD_LOSSES)
def test_every_loss_learns(form: Any, loss: str, rng: np.random.Generator):
    """A few passes separate labels whose keys are unrelated to their examples."""
    labels = np.arange(60) % 5
    rows = np.eye(5)[(labels + 2) % 5] + 0.1 * rng.normal(size=(60, 5))
    head, questions = trained(form, loss, rows.astype(np.float32), labels, n_passes=10)
    found, scores, touched = np.full((60, 5), -1), np.zeros((60, 5), np.float32), np.zeros(60, np.int64)
    answers = LabelAnswers(found, scores, touched, touched.copy())
    score_labels(head.scorers, questions, ALL_LABELS, answers)
    assert np.mean(found[:, 0] == labels) > 0.95
    assert (touched == 5).all()
    assert (np.diff(scores, axis=1) <= 0).all()
    assert (np.sort(found, axis=1) == np.arange(5)).all()


# The head's index and digest


def signed_scorers(rng: np.random.Generator) -> np.ndarray:
    """Return sparse scorers with weights of both signs: 30 labels over 12 features, some negative on average."""
    W = rng.normal(size=(30, 12)) * (rng.random((30, 12)) < 0.4) + 0.3 * (rng.random((30, 12)) < 0.5)
    return (W * np.where(np.arange(12) % 3 == 0, -1, 1)).astype(np.float32)


def index_of(W: np.ndarray) -> Postings:
    cells = scipy.sparse.csr_array(W)
    digest = Digest(cells.indptr.astype(np.int64), cells.indices, cells.data)
    return list_by_feature(digest, np.ones(cells.nnz, np.bool_), W.shape[1])


@pytest.mark.parametrize("room", [3, 12, 30])
def test_a_row_meets_the_labels_of_its_rarest_heavy_features(room: int, rng: np.random.Generator):
    W = signed_scorers(rng)
    index = index_of(W)
    for _ in range(20):
        x = (rng.normal(size=(1, 12)) * (rng.random((1, 12)) < 0.6)).astype(np.float32)
        if not x.any():
            continue
        rows = check_rows(scipy.sparse.csr_array(x))
        known = rng.choice(30, 2, replace=False)
        sums, labels = np.zeros(30, np.float32), np.full(room, -1)
        sums[known], labels[:2] = -1e30, known
        n_further = left = int(rng.integers(0, 25))
        n_met = met_by(index, rows, sums, labels, 2, n_further)
        unit, expected, met = x[0] / np.linalg.norm(x), np.zeros(30), list(known)
        lengths = np.diff(index.offsets)
        speaking = [f for f in range(12) if lengths[f] and unit[f] * index.weights[index.offsets[f]] > 0]
        for f in sorted(speaking, key=lambda f: -(unit[f] ** 2) / lengths[f]):
            for entry in range(index.offsets[f], index.offsets[f + 1]):
                label = index.labels[entry]
                if len(met) == room:
                    if left == 0:
                        break
                    left -= 1
                    if label not in met:
                        continue
                elif label not in met:
                    met.append(label)
                expected[label] += unit[f] * index.weights[entry]
        assert list(labels[:n_met]) == met
        others = np.setdiff1d(np.arange(30), known)
        np.testing.assert_allclose(sums[others], expected[others], atol=1e-6)


@inner
def _met_by(index, priorities, rows, sums, labels, n_found, n_further):
    return meet_labels(index, priorities, row_of(rows, 0), sums, labels, n_found, n_further)


@kernel
def met_by(index, rows, sums, labels, n_found, n_further):
    """Compile and call a function that kernels inline."""
    priorities = empty(rows.values.size, np.float32)
    n_met = _met_by(index, priorities, rows, sums, labels, n_found, n_further)
    release(priorities)
    return n_met


def test_a_digest_says_what_the_head_says(rng: np.random.Generator):
    rows, labels = examples_of(rng)
    head, questions = trained(scipy.sparse.csr_array, "mira", rows, labels, n_passes=2)
    answers = []
    for asked in (head, with_digest(head), without_digest(with_digest(head))):
        found, scores, touched = np.full((30, 5), -1), np.zeros((30, 5), np.float32), np.zeros(30, np.int64)
        answered = LabelAnswers(found, scores, touched, touched.copy())
        score_labels(asked.scorers, questions, ALL_LABELS, answered)
        answers.append(np.take_along_axis(scores, found.argsort(axis=1), axis=1))
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-6)
    np.testing.assert_array_equal(answers[2], answers[0])


@FORMS
def test_an_untrained_classifier_is_the_same_however_examples_come(form: Any):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 9)), np.arange(40) % 5
    X[5] = -X[0]  # the mean of class 0 is 0 for a while
    options = {"n_head_passes": 0, "random_state": 0}
    at_once, online = CMTClassifier(**options).fit(form(X), y), CMTClassifier(**options)
    for first in range(0, 40, 4):
        online.partial_fit(form(X[first : first + 4]), y[first : first + 4])
    of_once, of_online = model_of(at_once).label_of_class, model_of(online).label_of_class
    for c in range(5):
        np.testing.assert_allclose(
            weights_of(trained_head(online), 0, of_online[c]),
            weights_of(trained_head(at_once), 0, of_once[c]),
            atol=1e-5,
        )


@needs_jit
def test_the_margin_follows_the_gaps():
    """A single example equals its mean. Gaps measured on single examples must not fix the margin permanently."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(3000) % 300)
    X = rng.normal(size=(300, 12))[y] + 0.8 * rng.normal(size=(3000, 12))
    online = CMTClassifier(random_state=0)
    for first in range(0, 3000, 30):
        online.partial_fit(X[first : first + 30], y[first : first + 30])
    at_once = CMTClassifier(random_state=0).fit(X, y)
    assert margin_wanted(trained_head(online)) < 1.5 * margin_wanted(trained_head(at_once))
