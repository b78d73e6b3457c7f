"""Searches by vectors, by words, or by both."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from .._feedback import N_PASSED, join_candidates
from .._kernels import NONE
from .._postings import WeighedWords, WordStatistics, rank_by_parts
from ._state import AllowedMemories, StoreState
from ._word_vectors import full_scores

_DEPTH = 12  # at least this number of the best memories by vectors, and by words, are candidates
_N_COMPETITORS = 10  # number of results with which rewarded memories are compared
_RATE, _LEAST, _MOST = 0.1, 0.1, 1000.0  # step size and bounds of the weights of parts
_ALL = AllowedMemories(None, None)


def search(
    state: StoreState,
    Q: Any,
    words: list[Counter[int]] | None,
    k: int,
    target_recall: float,
    among: AllowedMemories | None,
    n_threads: int,
    statistics: WordStatistics | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids and scores of the best ``k`` memories for queries with vectors, with words, or with both.

    ``statistics`` weigh the words (default: those of the texts in the store).
    """
    vectors, texts = among or _ALL
    if words is None:
        if state.index is None:
            return np.full((Q.shape[0], k), NONE), np.full((Q.shape[0], k), -np.inf)
        return state.search(Q, k, target_recall, vectors, n_threads)
    queries = [state.texts.weigh(own, statistics) for own in words]
    if Q is None:
        return state.search_texts(queries, k, texts, n_threads)
    if state.index is None:
        ids, scores = state.texts.search(queries, k, texts, n_threads)
        return ids, np.expm1(scores / full_scores(queries)) * _relative_weights(state)[1]
    return _search_both(state, Q, queries, k, target_recall, among or _ALL, n_threads)


def _search_both(
    state: StoreState,
    Q: Any,
    queries: list[WeighedWords],
    k: int,
    target_recall: float,
    among: AllowedMemories,
    n_threads: int,
) -> tuple[np.ndarray, np.ndarray]:
    depth, learned = max(k, _DEPTH), state.feedback
    mapped, are_learned = None, np.zeros(len(queries), np.bool_)
    if learned is not None and learned.model.is_used:
        mapped = learned.map(Q)
        are_learned = np.array(learned.model.are_chosen(mapped.hashes))
    candidates = state.search(Q, depth, target_recall, among.vectors, n_threads, mapped)[0]
    if len(state.texts) > 0:
        by_words = state.texts.search(queries, depth, among.texts, n_threads)[0]
        candidates = np.concatenate([candidates, by_words], axis=1)
    ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k))
    parts = _parts_of_scores(state, Q, queries, candidates, mapped if are_learned.any() else None)
    parts[2, ~are_learned] = 0.0
    parts[:, are_learned] *= _relative_weights(state)[:, None, None]
    rank_by_parts(candidates, parts, np.ones(len(parts)), ids, scores)
    return ids, scores


def _parts_of_scores(
    state: StoreState, Q: Any, queries: list[WeighedWords], ids: np.ndarray, mapped: Any
) -> np.ndarray:
    """Return the parts of the scores of candidates, an array of shape (3, n, m).

    They are the cosine and the score of BM25 divided by :func:`full_scores`, both as ``exp(x) - 1``, so that a very
    good match by one of them outweighs two moderate ones, and the learned similarity minus the cosine in units of the
    first part. The parts of memories without a vector or a text, and of ids that are not stored, are 0, as is the last
    part if ``mapped``, the queries as the feedback model maps them, is None.
    """
    parts = np.zeros((3, *ids.shape))
    cosines = state.index.cosines(Q, ids)
    np.expm1(cosines, out=parts[0])
    np.expm1(state.texts.scores(queries, ids) / full_scores(queries), out=parts[1])
    if mapped is not None and state.feedback is not None:
        there = state.have_vectors(ids.reshape(-1)).reshape(ids.shape)
        similar = state.feedback.similarities(state.index, Q, mapped, np.where(there, ids, NONE))
        np.multiply(similar - cosines, np.exp(cosines), out=parts[2], where=there)
    return parts


def _relative_weights(state: StoreState) -> np.ndarray:
    return state.part_weights[0] / state.part_weights[0, 0]


class Compared(NamedTuple):
    """Rewarded memories and other results, with which they are compared."""

    ids: np.ndarray  # int64 (n, m): -1 for none
    parts: np.ndarray  # float64 (3, n, m): the parts of their scores
    firsts: np.ndarray  # int64 (n, 2): the columns of the best results by static and by learned ranking


def find_competitors(
    state: StoreState, Q: Any, queries: list[WeighedWords], ids: np.ndarray, target_recall: float
) -> Compared:
    """Compare rewarded memories with further results of each query that have vectors.

    These are the best results of the learned ranking, and the first one of the static ranking. If a result is among
    the rewarded memories, its second entry is -1.
    """
    found = [state.index.search(Q, _DEPTH, target_recall)[0], state.texts.search(queries, _DEPTH)[0]]
    feedback = state.feedback
    mapped = None if feedback is None else feedback.map(Q)
    if feedback is not None and mapped is not None and feedback.model.is_used:
        found += feedback.competitors(state.index, Q, mapped, target_recall)
    others = np.concatenate(found, axis=1)
    others[~state.have_vectors(others.reshape(-1)).reshape(others.shape)] = NONE
    n_shown, candidates = ids.shape[1], join_candidates(ids.shape[1], ids, others)
    parts = _parts_of_scores(state, Q, queries, candidates, mapped)
    weights = np.stack([np.array([1.0, 1.0, 0.0]), _relative_weights(state)])
    static, learned = np.where(candidates > NONE, np.tensordot(weights, parts, 1), -np.inf)
    first, best = static.argmax(axis=1)[:, None], np.argsort(-learned, axis=1, kind="stable")[:, :_N_COMPETITORS]
    chosen = np.concatenate([best, first], axis=1)
    is_gap = chosen < n_shown
    is_gap[:, -1:] |= (best == first).any(axis=1, keepdims=True)
    places = np.concatenate([np.tile(np.arange(n_shown), (len(ids), 1)), chosen], axis=1)
    compared = np.take_along_axis(candidates, places, 1)
    compared[:, n_shown:][is_gap] = NONE
    firsts = np.stack([(places == own[:, None]).argmax(axis=1) for own in (first[:, 0], best[:, 0])], axis=1)
    return Compared(compared, np.take_along_axis(parts, places[None], 2), firsts)


def mark_passed(rewards: np.ndarray, ids: np.ndarray, n_shown: int) -> None:
    """Set the reward of the best result to 0 if the best were not shown, and all known rewards of a query are good."""
    known = rewards[:, :n_shown]
    is_answer = np.where(np.isnan(known), np.inf, known).min(axis=1) > 0.5
    before = ids[:, n_shown : n_shown + N_PASSED] != NONE
    passed = is_answer & ~np.isnan(known).all(axis=1) & before.all(axis=1)
    rewards[passed, n_shown] = 0.0


def learn_weights(state: StoreState, parts: np.ndarray, ids: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Return the weights of the parts after a step by the gradient of a softmax for each query with rewards.

    Rewards count against the mean of those of the query or, if there is only one, of all rewards so far. Call it before
    the feedback model learns these rewards, so that each part counts as much as it has predicted.
    """
    weights, squares = state.part_weights.copy()
    there = ids > NONE
    parts = parts * np.array([1.0, 1.0, 0.0 if state.feedback is None else state.feedback.model.share])[:, None, None]
    usual = 0.5 if state.feedback is None else state.feedback.model.mean_reward
    for row in range(len(ids)):
        known = there[row] & ~np.isnan(rewards[row])
        if not known.any():
            continue
        own, advantages = parts[:, row], np.zeros(ids.shape[1])
        advantages[known] = rewards[row, known] - (rewards[row, known].mean() if known.sum() > 1 else usual)
        scores = np.where(there[row], weights @ own, -np.inf)
        chances = np.exp(scores - scores.max())
        errors = advantages - advantages.sum() * chances / chances.sum()
        gradients = weights * (own @ errors)
        squares += np.square(gradients)
        weights *= np.exp(_RATE * gradients / np.sqrt(np.maximum(squares, 1e-30)))
        np.clip(weights, _LEAST, _MOST, out=weights)
    return np.stack([weights, squares])
