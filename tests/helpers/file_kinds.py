"""Small objects of each kind in a file, other than trees and estimators, which ``saved.py`` makes; and their use."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse
from internals import model_of, pending_decisions
from sklearn.tree import DecisionTreeRegressor

from cmt_numba.bandits import (
    UCB1,
    ArgmaxRegressor,
    CMTBandit,
    EpsilonGreedy,
    HybridLinUCB,
    LinearThompson,
    LinUCB,
    SquareCB,
)
from cmt_numba.bandits.evaluation import Log
from cmt_numba.neighbors import LandmarkIndex
from cmt_numba.persistence import FileFormatError
from cmt_numba.reranking import Reranker
from cmt_numba.sequences import EditDistance, SequenceMemory, VPTree
from cmt_numba.text import BM25Vectorizer, FastTextClassifier, SubwordVectors, TextClassifier

# Policies

N, WIDTH = 12, 3
CONTEXTS = np.random.default_rng(0).normal(size=(N, WIDTH))
SPARSE_CONTEXTS = scipy.sparse.random_array((N, 8), density=0.5, format="csr", random_state=np.random.default_rng(3))
ACTIONS, REWARDS = np.arange(N) % 4, (np.arange(N) % 3 == 0).astype(float)
FEATURES = np.random.default_rng(1).normal(size=(4, 2))
LOG = Log(ACTIONS, REWARDS, CONTEXTS, np.full(N, 0.25))


def _learned(policy: Any) -> Any:
    return policy.learn(CONTEXTS, ACTIONS, REWARDS).remove_actions(2)


def _bandit(contexts: Any) -> CMTBandit:
    made = CMTBandit(n_candidates=2, n_tried=1, n_bits=4, n_trees=1, epsilon=0.1, random_state=0)
    made.add_actions(np.arange(6), contexts[:6])
    made.reward(made.act(contexts).ids[::2], REWARDS[::2])
    return made


def _decide(policy: Any) -> list[Any]:
    """Choose and learn, and check that probabilities sum to 1."""
    if policy.actions.size == 0:
        policy.add_actions([0, 1])
    said, known = [], policy.actions
    contexts: Any = np.random.default_rng(2).normal(size=(5, policy.n_features or WIDTH))
    if isinstance(policy, CMTBandit) and policy._sparse:
        contexts = scipy.sparse.csr_array(contexts)
    if isinstance(policy, HybridLinUCB):
        contexts *= 1e-12  # their products with features that a file may hold are not too large
    for _ in range(2):
        probabilities, chosen = policy.probabilities(contexts), policy.act(contexts)
        _check_choices(probabilities, chosen.actions, known)
        said += [probabilities, chosen.actions]
        if isinstance(policy, CMTBandit):
            policy.reward(list(pending_decisions(policy)), np.linspace(0.0, 1.0, policy.n_pending))
        policy.learn(contexts, chosen.actions, np.linspace(0.0, 1.0, 5))
        policy.remove_actions(known[:1])
        known = policy.actions
        if known.size == 0:
            break
    return said


def _decide_as_learned(policy: ArgmaxRegressor) -> list[Any]:
    contexts = np.random.default_rng(2).normal(size=(5, policy._width))
    probabilities, chosen = policy.probabilities(contexts), policy.act(contexts)
    _check_choices(probabilities, chosen.actions, policy._known)
    return [probabilities, chosen.actions, policy.expected(contexts, np.arange(5) + 2)]  # some are not in the log


def _check_choices(probabilities: np.ndarray, actions: np.ndarray, known: np.ndarray) -> None:
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-6)
    assert (probabilities >= 0.0).all()
    assert np.isin(actions, known).all()


# Models of texts

TEXTS = ["the red fox sleeps", "a blue whale", "red planets are far", "the blue planet", "red and blue"] * 3
TOPICS = ["animal", "animal", "planet", "planet", "colour"] * 3
QUERIES = ["Which planets are red?", "foxes", "", "the blue whale"]


def bm25(**options: Any) -> BM25Vectorizer:
    vectorizer = BM25Vectorizer(**options)
    return vectorizer.fit(TEXTS)


def _fasttext(**options: Any) -> FastTextClassifier:
    settings = {"n_epochs": 2, "min_n": 2, "max_n": 3, "n_buckets": 50, "random_state": 0}
    return FastTextClassifier(4, **settings | options).fit(TEXTS, TOPICS)


def _subword(**options: Any) -> SubwordVectors:
    settings = {"min_n": 2, "max_n": 3, "n_buckets": 50, "min_count": 2, "n_epochs": 1, "random_state": 0}
    return SubwordVectors(4, **settings | options).fit([*TEXTS, "a rare word"])


def encode(texts: list[str]) -> np.ndarray:
    """Return a vector of three components for each text."""
    return np.array([[1.0, len(text), text.count("e")] for text in texts])


def text_classifier(encoder: Any = None) -> TextClassifier:
    classifier = TextClassifier(encoder, random_state=0).fit(TEXTS, TOPICS)
    return classifier.partial_fit(["a red rose"], ["flower"], ids=["rose"])


def _classify(model: TextClassifier) -> list[Any]:
    if model_of(model) is None:
        return []  # the file of an unfitted classifier
    if model_of(model).dense is not None:
        model.set_params(encoder=encode)
        try:
            model.predict(QUERIES)
        except ValueError:
            return []  # the stored vectors are not those of the encoder
    before = model.predict_proba(QUERIES)
    assert np.isfinite(before).all()
    model.explain(QUERIES[:1])
    model.partial_fit(["a green frog"], model.classes_[:1], ids=["frog"]).remove("frog")
    model.calibrate(TEXTS[:2], model.classes_[:2])
    return [before, model.predict(QUERIES), model.predict_proba(QUERIES), model.ids_]


def _transform(model: Any) -> list[Any]:
    keys = [getattr(model, name)(QUERIES) for name in ("transform", "transform_documents") if hasattr(model, name)]
    if isinstance(model, FastTextClassifier):
        keys += [model.predict_proba(QUERIES), model.top_classes(QUERIES, 3)[1], model.top_classes(QUERIES, 1)[1]]
        model.predict(QUERIES)
    assert len(model.get_feature_names_out()) == keys[0].shape[1]
    if isinstance(model, SubwordVectors):
        keys += [model.word_vectors(["fox", "foxes"]), np.array([score for _, score in model.nearest_words("fox", 3)])]
        keys.append(model.partial_fit(TEXTS).transform(QUERIES))
    if isinstance(model, BM25Vectorizer):
        keys.append(model.partial_fit(["a red whale"]).transform(QUERIES))
    found = [key.toarray() if scipy.sparse.issparse(key) else key for key in keys]
    assert all(np.isfinite(key).all() for key in found)
    return found


# Sequences

WORDS = ["abc", "bca", "", "aab", "cc", "abcabc", "ba", "b", "cab"]
ROWS = np.random.default_rng(0).normal(size=(30, 3))


def _distance(**options: Any) -> EditDistance:
    return EditDistance("abc", n_rounds=1, random_state=0, **options).fit(WORDS, WORDS[::-1], np.arange(9))


def _tree(points: Any, *args: Any, **options: Any) -> VPTree:
    made = VPTree(*args, leaf_size=2, random_state=0, **options)
    made.insert(points)
    made.remove([1])
    return made


def _memory(distance: EditDistance) -> SequenceMemory:
    made = SequenceMemory(distance, n_bits=8, random_state=0)
    made.insert(WORDS)
    made.feedback(["abba", "c"], [0, 4], [1.0, 1.0])
    made.remove([1])
    return made


def _compare(thing: Any) -> list[Any]:
    """Use a distance, a tree or a memory of sequences, or a tree of rows."""
    distance = thing if isinstance(thing, EditDistance) else getattr(thing, "distance", getattr(thing, "metric", None))
    if isinstance(distance, EditDistance):
        symbols = distance.symbols_
        points: Any = [[], [symbols[0]], [symbols[-1], symbols[0]], list(symbols)[:4]]
        if distance is thing:
            lengths = distance.pairwise(points, points)
            assert (lengths >= 0.0).all()
            assert np.isfinite(lengths).all()
            assert distance.align(points[1], points[2]).distance >= 0.0
            if distance.symmetric:
                _tree(points, distance, tolerance=0.1)
            return [lengths, list(map(str, symbols)), getattr(distance, "errors_", [])]
    else:
        width = thing._stored().rows.shape[1] if len(thing) > 0 else 2
        points = np.random.default_rng(1).normal(size=(4, width))
    return _search(thing, points, min(5, getattr(thing, "n_candidates", 5)))


def _search(thing: Any, points: Any, k: int) -> list[Any]:
    """Query and change an index twice."""
    said = []
    for _ in range(2):
        found = thing.query(points, k)
        values = found[1]
        assert (np.isin(found.ids, thing.ids) | (found.ids == -1)).all()
        assert np.isfinite(values[found.ids >= 0]).all()
        ids = thing.insert(points)
        said += [found.ids, values, ids]
        if isinstance(thing, SequenceMemory):
            thing.feedback(points, ids, [1.0, 0.0, 1.0, 0.5])
        thing.remove(thing.ids[::2])
        if not isinstance(thing, SequenceMemory):
            thing.rebuild()
    return said


# Indexes of rows, and models of rewards


def _index(metric: str) -> LandmarkIndex:
    index = LandmarkIndex(metric, random_state=0)
    index.insert(ROWS)
    index.remove([3, 4])
    return index


def _find(index: LandmarkIndex) -> list[Any]:
    width = index.landmarks_.shape[1] if index.n_lists_ else 3
    said = _search(index, np.random.default_rng(1).normal(size=(4, width)), 5)
    return [*said, index.landmarks_]


DOCUMENTS = ["a red fox", "the blue whale", "red planets", "a small green fox"]
ASKED = ["red", "blue fox", "planet", "green"]
IDS = np.array([[0, 1], [1, 3], [2, -1], [3, 0]])
HITS = IDS, np.where(IDS >= 0, np.linspace(1.0, 0.1, 8).reshape(4, 2), -np.inf)
WORTH = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, np.nan], [0.5, 0.0]])
MODEL = DecisionTreeRegressor(max_depth=2, random_state=0)


def _reranker(*features: str) -> Reranker:
    reranker = Reranker(MODEL, features=features, random_state=0)
    return reranker.fit(ASKED, DOCUMENTS, HITS, WORTH, weights=[1.0, 2.0, 0.0, 1.0])


def _rerank(reranker: Reranker) -> list[Any]:
    said: list[Any] = []
    for _ in range(2):
        found = reranker.rerank(ASKED, DOCUMENTS, HITS, 1)
        assert np.isin(found.ids, IDS).all()
        assert np.isfinite(found.scores[found.ids >= 0]).all()
        reranker.partial_fit(ASKED, DOCUMENTS, HITS, WORTH)
        said += [found.ids, found.scores, reranker.n_queries_]
    return said


def _load_reranker(path: Path) -> Reranker:
    try:
        return Reranker.load(path, MODEL)
    except ValueError as error:
        if "functions must be" not in str(error):  # if the file has other features than the functions passed
            raise
        raise FileFormatError(path, str(error)) from error


MAKERS: dict[str, Callable[[], Any]] = {
    "random": lambda: EpsilonGreedy(4, epsilon=1.0, random_state=0),
    "ucb1": lambda: _learned(UCB1(4, random_state=0)),
    "epsilon": lambda: _learned(EpsilonGreedy(4)),
    "contextual epsilon": lambda: _learned(EpsilonGreedy(4, contextual=True, decay=0.1)),
    "linucb": lambda: _learned(LinUCB(4, random_state=0)),
    "hybrid": lambda: _learned(HybridLinUCB(4)),
    "featured": lambda: _learned(HybridLinUCB(action_features=FEATURES)),
    "thompson": lambda: _learned(LinearThompson(4)),
    "squarecb": lambda: _learned(SquareCB(4)),
    "new": lambda: LinUCB(4),
    "argmax": lambda: ArgmaxRegressor(random_state=0).fit(LOG),
    "argmax by contexts": lambda: ArgmaxRegressor(support="contexts").fit(LOG),
    "bandit": lambda: _bandit(CONTEXTS),
    "sparse bandit": lambda: _bandit(SPARSE_CONTEXTS),
    "bm25": bm25,
    "bm25 hashed": lambda: bm25(n_features=30, norm="l2", ngram_range=(1, 2)),
    "bm25 of characters": lambda: bm25(analyzer="char_wb", ngram_range=(2, 3), k1=np.float64(1.2)),
    "subword": _subword,
    "subword sif": lambda: _subword(pooling="sif", method="cbow", n_whole_words=2),
    "fasttext": _fasttext,
    "fasttext of means": lambda: _fasttext(weighting="mean", word_ngrams=1),
    "text classifier": text_classifier,
    "text classifier with an encoder": lambda: text_classifier(encode),
    "plain distance": lambda: EditDistance("abc"),
    "learned distance": lambda: _distance(transposition=1.0, gap_opening=0.5),
    "directed distance": lambda: _distance(symmetric=False, insertion=np.float64(2.0), local=0.5),
    "distance of numbers": lambda: EditDistance([(1, 2.0), (3, 4.0), "c"]),
    "tree of rows": lambda: _tree(ROWS[:9, :2]),
    "tree of angles": lambda: _tree(ROWS[:9, :2], "angular", tolerance=0.05),
    "tree of words": lambda: _tree(WORDS, EditDistance("abc")),
    "tree of learned distances": lambda: _tree(WORDS, _distance(), tolerance=0.05),
    "empty tree": lambda: VPTree(random_state=0),
    "memory": lambda: _memory(_distance(symmetric=False)),
    "landmarks by cosine": lambda: _index("cosine"),
    "landmarks by product": lambda: _index("inner_product"),
    "landmarks by distance": lambda: _index("euclidean"),
    "gaussian landmarks": lambda: _index("gaussian"),
    "laplacian landmarks": lambda: _index("laplacian"),
    "no landmarks": lambda: LandmarkIndex("cosine", random_state=0),
    "dense reranker": lambda: _reranker("score", "rank", "overlap", "lengths"),
    "sparse reranker": lambda: _reranker("score", "bm25", "terms"),
}

_USES: dict[Any, Callable[[Any], list[Any]]] = {
    ArgmaxRegressor: _decide_as_learned,
    TextClassifier: _classify,
    **dict.fromkeys((EditDistance, VPTree, SequenceMemory), _compare),
    **dict.fromkeys((BM25Vectorizer, SubwordVectors, FastTextClassifier), _transform),
    LandmarkIndex: _find,
    Reranker: _rerank,
}


def use(thing: Any) -> list[Any]:
    """Let an object answer and learn as users do, check the answers, and return them."""
    return _USES.get(type(thing), _decide)(thing)


def loader(thing: Any) -> Callable[..., Any]:
    """Return a function that loads objects of this kind from a file."""
    return _load_reranker if isinstance(thing, Reranker) else partial(type(thing).load)


@cache
def in_file(name: str) -> tuple[type[Any], bytes, Callable[..., Any]]:
    """Return the class of a kind of object, a file of it, and the function that loads it."""
    thing = MAKERS[name]()
    with TemporaryDirectory() as folder:
        thing.save(Path(folder) / "thing")
        return type(thing), (Path(folder) / "thing").read_bytes(), loader(thing)
