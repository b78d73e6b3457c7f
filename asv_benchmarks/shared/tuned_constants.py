"""The constants that control learning and search, the trade-off of each, and the sets that it is measured on.

``sensitivity.py`` runs every set of ``sensitivity_cases.py`` that a constant names, with the constant unchanged, halved
and doubled, and prints the tables of ``docs/measurements/tuning.md``.
"""

from typing import NamedTuple


class Constant(NamedTuple):
    """A module's attribute."""

    module: str  # within the package
    name: str
    trades: str
    cases: tuple[str, ...]  # names of the sets that it is measured on
    extremes: tuple[float, ...] = ()  # further factors


FEW_CLASSES = ("coil100", "clinc150, 5 shots", "clinc150, 30 shots")
DENSE = ("coil100", "omniglot", "synthetic")
SPARSE = ("clinc150, 5 shots", "clinc150, 30 shots", "wikipara1k")
CLASSES = ("coil100", "omniglot", "synthetic", *SPARSE)
UNSEEN = ("mr", "subj", "cr", "mpqa", "trec", "misspellings", "digits")  # no constant was chosen on these
ONLINE = ("wikipara1k, online",)
SOFTMAX = ("clinc150, softmax", "omniglot, softmax")
COMMON_LABELS = ("bibtex", "delicious")
RARE_LABELS = ("debian_depends",)
TREES = ("tree, dense", "tree, sparse")
LEARNING = ("tree, rewards", "tree, rewards, dense")
FAR = (0.125, 8.0)

_FOREST, _SVM, _SCORERS = "estimators._label_index", "_heads.multiclass_svm", "_heads.label_scorers"
_MULTILABEL, _BINARY = "estimators._multilabel_model", "_heads.binary_svm"
_RETRIEVER, _RANKING = "estimators._retrieval_model", "_forest.ranking"

CLASSIFIER = (
    Constant(_FOREST, "_SHARE_OF_LABELS", "share of the classes looked at: error against time", CLASSES),
    Constant(_SVM, "_GAPS_IN_A_MARGIN", "margin asked for: fit to examples against error on others", CLASSES),
    Constant(_SVM, "_HARDNESS", "C: fit to examples against error on others", CLASSES),
    Constant(_SVM, "_LEAST_HARDNESS", "C for a class of very many examples: the same", (*DENSE, "clinc150, 30 shots")),
    Constant(_SVM, "_MANY_EXAMPLES", "from how many on the start counts for less", (*DENSE, "clinc150, 30 shots"), FAR),
    Constant(_SVM, "_PRIOR_EXAMPLES", "how much softer the margin is for classes of few examples", CLASSES, FAR),
    Constant(
        _FOREST, "_CELLS_ROUTED", "cells of a sparse row that routers see: time and memory against finding", SPARSE
    ),
    Constant(_FOREST, "_DENSE_TREES", "trees: error against time and memory", DENSE),
    Constant(_FOREST, "_SPARSE_TREES", "trees beside the index: error against time and memory", SPARSE),
    Constant(_FOREST, "_DENSE_LEAVES", "leaves searched for each tree: error against time", DENSE),
    Constant(_FOREST, "_SPARSE_LEAVES", "leaves searched for each tree: error against time", SPARSE),
    Constant(_FOREST, "_SHARE_OF_A_LEAF", "size of leaves of few classes: error against time", CLASSES),
    Constant(_FOREST, "_DENSE_MULTIPLIER", "size of leaves of many classes: error against time", DENSE),
    Constant(_FOREST, "_SPARSE_MULTIPLIER", "size of leaves of many classes: error against time", SPARSE),
    Constant(_FOREST, "_SURE_MARGIN", "from which margin on the other side is not looked at", CLASSES),
    Constant(_FOREST, "_WIDER_IN_TRAINING", "competitors met in training: error against time to train", CLASSES),
    Constant(_FOREST, "_FEWEST_LISTED", "classes of the index scored in full: error against time", SPARSE),
    Constant(_FOREST, "_SHARE_LISTED", "the same, of those looked at, with 5,120 classes or more", ("bible",)),
    Constant(
        _FOREST, "_LABELS_PER_LEVEL", "classes looked at where there are 26,000 or more: error against time", ("bible",)
    ),
    Constant(_FOREST, "_MORE_TREES", "trees of classes of many examples", ("synthetic", "coil100, 18 views")),
    Constant(_FOREST, "_MANY_EXAMPLES", "from when on there are more trees", ("synthetic", "coil100, 18 views"), FAR),
    Constant(
        _FOREST, "_LABELS_BEFORE_MORE_LEAVES", "from when on more leaves are searched", ("omniglot, all classes",)
    ),
    Constant(_FOREST, "_FEWEST_CANDIDATES", "classes looked at where there are fewer than 80", FEW_CLASSES, FAR),
    Constant(_FOREST, "_MANY_CLASSES", "from when on leaves hold a share of the classes", FEW_CLASSES, FAR),
    Constant(_FOREST, "_GROWTH_LISTED", "how old the index may be in training: error against time", ONLINE),
    Constant(_FOREST, "_LABELS_LISTED_A_ROW", "how often small batches renew index and digest", ONLINE, FAR),
    Constant("_heads.inverted_index", "_MOST_LISTS", "lists gone through for a row: error against time", SPARSE, FAR),
    Constant("_heads.shortlists", "_LENGTH", "competitors met in further passes: error against time to train", CLASSES),
    Constant(_SVM, "_SWEEPS", "steps for one example at a time: fewer passes against time", CLASSES),
    Constant(_SVM, "_CLOSE_ENOUGH", "smallest step taken: exactness against time to train", CLASSES, FAR),
    Constant(_SVM, "_GAPS_MEASURED", "examples that the margin is set by", CLASSES, FAR),
    Constant(_SVM, "N_COMPETITORS", "competitors held apart at once: exactness against memory", CLASSES, FAR),
    Constant(_SCORERS, "NEGLIGIBLE", "weights forgotten: memory and time against error", SPARSE, (0.125, 4.0)),
    Constant(
        "estimators._classification_model",
        "_LABELS_SCANNED",
        "classes whose examples may be neighbours: quality of neighbours against time",
        ("coil100, neighbours", "wikipara1k, neighbours"),
    ),
    Constant("_heads.softmax", "_STEEPNESS", "softmax: logits of a margin", SOFTMAX),
    Constant("_heads.softmax", "_NEGLIGIBLE", "softmax: slopes not learned from, memory against error", SOFTMAX),
    Constant(
        _SCORERS, "_CELLS_IN_A_LOOKUP", "time only: when a label's table is looked up in place of gone through", SPARSE
    ),
)

MULTILABEL = (
    Constant(_MULTILABEL, "_MOST_COMMON", "labels that learn from all rows: error against time", RARE_LABELS),
    Constant(_MULTILABEL, "_SHARE_OF_ROWS", "from which frequency on they do", RARE_LABELS),
    Constant(_FOREST, "_LABELS_PER_LEVEL_OF_SETS", "rarer labels looked at: error against time", RARE_LABELS),
    Constant(_FOREST, "_FEWEST_LISTED_OF_SETS", "labels of the index scored in full: error against time", RARE_LABELS),
    Constant(_FOREST, "_LISTED_FOR_A_LABEL", "the same, where rows have five labels or more", RARE_LABELS),
    Constant(
        _FOREST, "_WIDER_LISTS_IN_TRAINING", "rows that a rare label learns from: error against time", RARE_LABELS
    ),
    Constant(_MULTILABEL, "_SWEEPS", "sweeps over the rows of a rare label in a pass", RARE_LABELS),
    Constant(_MULTILABEL, "_SWEEPS_AT_ONCE", "most sweeps over the rows of a common label", COMMON_LABELS),
    Constant(_BINARY, "_SOFTNESS", "1 / 2C: fit to examples against error on others", COMMON_LABELS + RARE_LABELS),
    Constant(_BINARY, "_FARTHEST", "step at which sweeps end: exactness against time", COMMON_LABELS),
    Constant(_BINARY, "_CLOSE_ENOUGH", "smallest step taken: exactness against time", COMMON_LABELS, FAR),
    Constant(
        _BINARY, "_SWEEPS_TO_CHECK", "how often all rows are looked at: exactness against time", COMMON_LABELS, (8.0,)
    ),
    Constant(_MULTILABEL, "_NEGLIGIBLE_IN_COMMON", "weights forgotten: memory against error", COMMON_LABELS, FAR),
)

RETRIEVER = (
    Constant(_RETRIEVER, "_VALUE_TREES", "trees over values: error against time", ("flickr8k",)),
    Constant(_RETRIEVER, "_VALUE_LEAVES", "leaves searched for each: error against time", ("flickr8k",)),
    Constant(_RETRIEVER, "_SURE_MARGIN", "from which margin on the other side is not looked at", ("flickr8k",)),
    Constant("estimators._values", "_VALUES_LOOKED_AT", "values that the basis is made of", ("flickr8k",), (0.125,)),
    Constant(_RETRIEVER, "_KEY_TREES", "trees over keys: error against time", ("flickr8k, by key",)),
    Constant(_RETRIEVER, "WORTH_KEEPING", "reward from which on a query is stored", ("flickr8k, feedback",)),
    Constant(_RETRIEVER, "_SPARE_ANSWERS", "keys asked for beyond those wanted", ("flickr8k, feedback",), FAR),
)

TREE = (
    Constant("_forest.insert_remove", "_SPLIT_PASSES", "time to split a leaf against how well it parts", TREES),
    Constant(
        "_forest.routers", "_CLOSE_ENOUGH", "errors that routers learn from: error against time", (*TREES, "wikipara1k")
    ),
    Constant(_RANKING, "_STEEPNESS", "logits of a gap between scores", ("tree, ranking",)),
    Constant(_RANKING, "_MARGIN", "MIRA: gap asked for", ("tree, mira",)),
    Constant(_RANKING, "_AGGRESSIVENESS", "MIRA: cap on a step", ("tree, mira",)),
    Constant(
        _RANKING,
        "_LEAST_WEIGHT",
        "how far a feature may count against",
        ("tree, ranking", "tree, mira"),
        (0.125, 1000.0),
    ),
    Constant("_forest.moved_keys", "_STEEPNESS", "learn: how far ahead a right memory stops moving", LEARNING),
    Constant(
        "_engine.supervise", "_ROWS_IN_A_BLOCK", "learn: rows that see the same tree, freshness against time", LEARNING
    ),
    Constant("tree", "_LEAVES_OF_EACH", "learn: leaves searched, what is met and joined against time", LEARNING),
    Constant(
        "_engine.supervise",
        "_WORTH_REBUILDING",
        "learn: share of memories joined before trees are rebuilt",
        LEARNING,
        FAR,
    ),
    Constant("_forest.partition", "_PASSES", "rebuild: time against how well routers part halves", LEARNING),
    Constant("_forest.partition", "_ROUNDS", "rebuild: time against how near halves are in themselves", LEARNING),
    Constant("_forest.partition", "_LEAST_SHARE", "rebuild: when groups and not routers place memories", LEARNING),
    Constant(
        "_engine.insert", "_INSERTS_TO_FILL", "bounded trees: what routers keep against time", ("tree, bounded",), FAR
    ),
    Constant(
        "_forest.filtering",
        "WORTH_A_LEAF",
        "among: how many are all scored, error against time",
        ("tree, among",),
        FAR,
    ),
    Constant(
        "_forest.linear_model", "_CELLS_IN_A_LOOKUP", "time only: tables looked up or gone through", ("tree, sparse",)
    ),
)

FURTHER = (Constant(_SVM, "_GAPS_IN_A_MARGIN", "margin asked for, on sets that nothing was chosen on", UNSEEN),)

CONSTANTS = {
    "CMTClassifier": CLASSIFIER,
    "CMTClassifier on further sets": FURTHER,
    "CMTMultilabelClassifier": MULTILABEL,
    "CMTRetriever": RETRIEVER,
    "ContextualMemoryTree": TREE,
}
