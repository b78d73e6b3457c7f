"""The constants that decide what is learned and how far is searched: where each is, and on what it is measured.

``docs/tuning.md`` says what each of them trades. ``measure_sensitivity.py`` runs every set of ``CASES`` that a constant
names with the constant as it is, halved and doubled.
"""

from typing import NamedTuple


class Constant(NamedTuple):
    """A module's attribute."""

    module: str  # within the package
    name: str
    cases: tuple[str, ...]  # names of the sets that it is measured on
    extremes: tuple[float, ...] = ()  # further factors


FEW_CLASSES = ("coil100", "clinc150, 5 shots", "clinc150, 100 shots")
DENSE = ("coil100", "omniglot", "synthetic")
SPARSE = ("clinc150, 5 shots", "clinc150, 100 shots", "wikipara1k")
CLASSES = ("coil100", "omniglot", "synthetic", *SPARSE)
ONLINE = ("wikipara1k, online",)
ADAGRAD = ("clinc150, softmax", "omniglot, softmax")
COMMON_LABELS = ("bibtex", "delicious")
RARE_LABELS = ("debian_depends",)
TREES = ("tree, dense", "tree, sparse")

_FOREST, _SVM, _SCORERS = "estimators._label_forest", "_heads.multiclass_svm", "_heads.label_scorers"
_MULTILABEL, _BINARY = "estimators._multilabel", "_heads.binary_svm"
_RETRIEVER, _RANKING = "estimators._retriever", "_forest.ranking"

CLASSIFIER = (
    Constant(_FOREST, "_SHARE_OF_LABELS", CLASSES),
    Constant(_SVM, "_GAPS_IN_A_MARGIN", CLASSES),
    Constant(_SVM, "_HARDNESS", CLASSES),
    Constant(_SVM, "_PRIOR_EXAMPLES", CLASSES, (0.125, 8.0)),
    Constant(_FOREST, "_CELLS_ROUTED", SPARSE),
    Constant(_FOREST, "_DENSE_TREES", DENSE),
    Constant(_FOREST, "_SPARSE_TREES", SPARSE),
    Constant(_FOREST, "_DENSE_LEAVES", DENSE),
    Constant(_FOREST, "_SPARSE_LEAVES", SPARSE),
    Constant(_FOREST, "_SHARE_OF_A_LEAF", CLASSES),
    Constant(_FOREST, "_DENSE_MULTIPLIER", DENSE),
    Constant(_FOREST, "_SPARSE_MULTIPLIER", SPARSE),
    Constant(_FOREST, "_SURE_MARGIN", CLASSES),
    Constant(_FOREST, "_WIDER_IN_TRAINING", CLASSES),
    Constant(_FOREST, "_FEWEST_LISTED", SPARSE),
    Constant(_FOREST, "_SHARE_LISTED", ("bible",)),
    Constant(_FOREST, "_LABELS_PER_LEVEL", ("bible",)),
    Constant(_FOREST, "_SHARE_LISTED_OF_FEW", ("wikipara1k, 200 candidates",), (0.125, 8.0)),
    Constant(_FOREST, "_MORE_TREES", ("synthetic", "coil100, 18 views")),
    Constant(_FOREST, "_MANY_EXAMPLES", ("synthetic", "coil100, 18 views"), (0.125, 8.0)),
    Constant(_FOREST, "_LABELS_BEFORE_MORE_LEAVES", ("omniglot", "synthetic")),
    Constant(_FOREST, "_FEWEST_CANDIDATES", FEW_CLASSES, (0.125, 8.0)),
    Constant(_FOREST, "_MANY_CLASSES", FEW_CLASSES, (0.125, 8.0)),
    Constant(_FOREST, "_GROWTH_LISTED", ONLINE),
    Constant(_FOREST, "_LABELS_LISTED_A_ROW", ONLINE, (0.125, 8.0)),
    Constant("_heads.inverted_index", "_MOST_LISTS", SPARSE, (0.125, 8.0)),
    Constant(_SVM, "_SWEEPS", CLASSES),
    Constant(_SVM, "_CLOSE_ENOUGH", CLASSES, (0.125, 8.0)),
    Constant(_SVM, "N_RIVALS", CLASSES, (0.125, 8.0)),
    Constant(_SVM, "_GAPS_MEASURED", CLASSES, (0.125, 8.0)),
    Constant(_SCORERS, "_NEGLIGIBLE", SPARSE, (0.125, 4.0)),
    Constant("estimators._classifier", "_LABELS_SCANNED", ("coil100, neighbours", "wikipara1k, neighbours")),
    Constant(_SVM, "_STEEPNESS", ADAGRAD),
    Constant(_SVM, "_NEGLIGIBLE", ADAGRAD),
    Constant(_SCORERS, "_CELLS_IN_A_LOOKUP", SPARSE),
)

MULTILABEL = (
    Constant(_MULTILABEL, "_MOST_COMMON", RARE_LABELS),
    Constant(_MULTILABEL, "_SHARE_OF_ROWS", RARE_LABELS),
    Constant(_MULTILABEL, "_LABELS_PER_LEVEL", RARE_LABELS),
    Constant(_MULTILABEL, "_FEWEST_LISTED", RARE_LABELS),
    Constant(_MULTILABEL, "_LISTED_FOR_A_LABEL", RARE_LABELS),
    Constant(_MULTILABEL, "_WIDER_IN_TRAINING", RARE_LABELS),
    Constant(_MULTILABEL, "_SWEEPS", RARE_LABELS),
    Constant(_MULTILABEL, "_SWEEPS_AT_ONCE", COMMON_LABELS),
    Constant(_BINARY, "_SOFTNESS", COMMON_LABELS + RARE_LABELS),
    Constant(_BINARY, "_FARTHEST", COMMON_LABELS),
    Constant(_BINARY, "_CLOSE_ENOUGH", COMMON_LABELS, (0.125, 8.0)),
    Constant(_BINARY, "_SWEEPS_TO_CHECK", COMMON_LABELS, (8.0,)),
    Constant(_MULTILABEL, "_NEGLIGIBLE_IN_COMMON", COMMON_LABELS, (0.125, 8.0)),
)

RETRIEVER = (
    Constant(_RETRIEVER, "_VALUE_TREES", ("flickr8k",)),
    Constant(_RETRIEVER, "_VALUE_LEAVES", ("flickr8k",)),
    Constant(_RETRIEVER, "_SURE_MARGIN", ("flickr8k",)),
    Constant("estimators._values", "_VALUES_LOOKED_AT", ("flickr8k",), (0.125,)),
    Constant(_RETRIEVER, "_KEY_TREES", ("flickr8k, by key",)),
    Constant(_RETRIEVER, "_WORTH_KEEPING", ("flickr8k, feedback",)),
    Constant(_RETRIEVER, "_SPARE_ANSWERS", ("flickr8k, feedback",), (0.125, 8.0)),
)

TREE = (
    Constant("_forest.insert_remove", "_SPLIT_PASSES", TREES),
    Constant("_forest.routers", "_CLOSE_ENOUGH", (*TREES, "omniglot", "wikipara1k")),
    Constant(_RANKING, "_STEEPNESS", ("tree, ranking",)),
    Constant(_RANKING, "_MARGIN", ("tree, mira",)),
    Constant(_RANKING, "_AGGRESSIVENESS", ("tree, mira",)),
    Constant(_RANKING, "_LEAST_WEIGHT", ("tree, ranking", "tree, mira"), (0.125, 1000.0)),
    Constant("tree", "_ROWS_IN_A_BLOCK", ("tree, ranking",)),
    Constant("tree", "_INSERTS_TO_FILL", ("tree, bounded",), (0.125, 8.0)),
    Constant("_forest.filtering", "_WORTH_A_LEAF", ("tree, among",), (0.125, 8.0)),
    Constant("_forest.linear_model", "_CELLS_IN_A_LOOKUP", ("tree, sparse",)),
)

CONSTANTS = {"classifier": CLASSIFIER, "multilabel": MULTILABEL, "retriever": RETRIEVER, "tree": TREE}
