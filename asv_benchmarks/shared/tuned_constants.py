"""The constants that control learning and search, their meanings, and the sets that they are measured on.

``classifiers.py sensitivity`` runs every set of ``sensitivity_cases.py`` that a constant names, with the constant
unchanged, halved and doubled, and prints the tables of ``docs/measurements/tuning.md``.
"""

from typing import NamedTuple


class Constant(NamedTuple):
    """A module's attribute."""

    module: str  # within the package
    name: str
    meaning: str
    cases: tuple[str, ...]  # names of the sets that it is measured on
    extremes: tuple[float, ...] = ()  # additional factors


FEW_CLASSES = ("coil100", "clinc150, 5 shots", "clinc150, 30 shots")
DENSE = ("coil100", "omniglot", "synthetic")
SPARSE = ("clinc150, 5 shots", "clinc150, 30 shots", "wikipara1k")
CLASSES = ("coil100", "omniglot", "synthetic", *SPARSE)
UNSEEN = ("mr", "subj", "cr", "mpqa", "trec", "misspellings", "digits")  # not used for tuning
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
    Constant(_FOREST, "_SHARE_OF_LABELS", "share of the classes that are scored", CLASSES),
    Constant(_SVM, "_GAPS_IN_A_MARGIN", "required margin: fit to the training examples", CLASSES),
    Constant(_SVM, "_HARDNESS", "C: fit to the training examples", CLASSES),
    Constant(_SVM, "_LEAST_HARDNESS", "C of a class with very many examples", (*DENSE, "clinc150, 30 shots")),
    Constant(
        _SVM,
        "_MANY_EXAMPLES",
        "examples from which the initial scorer counts less",
        (*DENSE, "clinc150, 30 shots"),
        FAR,
    ),
    Constant(_SVM, "_PRIOR_EXAMPLES", "how much softer the margin is for classes with few examples", CLASSES, FAR),
    Constant(_FOREST, "_CELLS_ROUTED", "features of a sparse row that routers use", SPARSE),
    Constant(_FOREST, "_DENSE_TREES", "number of trees", DENSE),
    Constant(_FOREST, "_SPARSE_TREES", "number of trees in addition to the index", SPARSE),
    Constant(_FOREST, "_DENSE_LEAVES", "leaves searched per tree", DENSE),
    Constant(_FOREST, "_SPARSE_LEAVES", "leaves searched per tree", SPARSE),
    Constant(_FOREST, "_SHARE_OF_A_LEAF", "leaf size with few classes", CLASSES),
    Constant(_FOREST, "_DENSE_MULTIPLIER", "leaf size with many classes", DENSE),
    Constant(_FOREST, "_SPARSE_MULTIPLIER", "leaf size with many classes", SPARSE),
    Constant(_FOREST, "_SURE_MARGIN", "margin above which the other side is not searched", CLASSES),
    Constant(_FOREST, "_WIDER_IN_TRAINING", "competitors found in training", CLASSES),
    Constant(_FOREST, "_FEWEST_LISTED", "classes from the index that are scored with all weights", SPARSE),
    Constant(
        _FOREST, "_SHARE_LISTED", "the same as a share of the classes found, with 5,120 classes or more", ("bible",)
    ),
    Constant(_FOREST, "_LABELS_PER_LEVEL", "classes scored per tree level, with 26,000 classes or more", ("bible",)),
    Constant(_FOREST, "_MORE_TREES", "trees for classes with many examples", ("synthetic", "coil100, 18 views")),
    Constant(
        _FOREST,
        "_MANY_EXAMPLES",
        "examples per class from which there are more trees",
        ("synthetic", "coil100, 18 views"),
        FAR,
    ),
    Constant(
        _FOREST, "_LABELS_BEFORE_MORE_LEAVES", "classes from which more leaves are searched", ("omniglot, all classes",)
    ),
    Constant(_FOREST, "_FEWEST_CANDIDATES", "classes scored, with fewer than 80 classes", FEW_CLASSES, FAR),
    Constant(_FOREST, "_MANY_CLASSES", "classes from which the leaf size is a share of them", FEW_CLASSES, FAR),
    Constant(_FOREST, "_GROWTH_LISTED", "growth after which training renews the index", ONLINE),
    Constant(_FOREST, "_LABELS_LISTED_A_ROW", "how often small batches renew the index and the digest", ONLINE, FAR),
    Constant("_heads.inverted_index", "_MOST_LISTS", "posting lists read per row", SPARSE, FAR),
    Constant("_heads.shortlists", "_LENGTH", "competitors kept for later passes", CLASSES),
    Constant(_SVM, "_SWEEPS", "consecutive steps per example", CLASSES),
    Constant(_SVM, "_CLOSE_ENOUGH", "smallest step", CLASSES, FAR),
    Constant(_SVM, "_GAPS_MEASURED", "examples that determine the margin", CLASSES, FAR),
    Constant(_SVM, "N_COMPETITORS", "competitors per example", CLASSES, FAR),
    Constant(_SCORERS, "NEGLIGIBLE", "weights that are dropped", SPARSE, (0.125, 4.0)),
    Constant(
        "estimators._classification_model",
        "_LABELS_SCANNED",
        "classes whose examples are compared",
        ("coil100, neighbours", "wikipara1k, neighbours"),
    ),
    Constant("_heads.softmax", "_STEEPNESS", "softmax: logits per unit of margin", SOFTMAX),
    Constant("_heads.softmax", "_NEGLIGIBLE", "softmax: gradients that are ignored", SOFTMAX),
    Constant(_SCORERS, "_CELLS_IN_A_LOOKUP", "time only: whether a label's table is looked up or scanned", SPARSE),
)

MULTILABEL = (
    Constant(_MULTILABEL, "_MOST_COMMON", "labels that learn from all rows", RARE_LABELS),
    Constant(_MULTILABEL, "_SHARE_OF_ROWS", "frequency from which labels learn from all rows", RARE_LABELS),
    Constant(_FOREST, "_LABELS_PER_LEVEL_OF_SETS", "rarer labels scored per tree level", RARE_LABELS),
    Constant(_FOREST, "_FEWEST_LISTED_OF_SETS", "labels from the index that are scored with all weights", RARE_LABELS),
    Constant(_FOREST, "_LISTED_FOR_A_LABEL", "the same, with five labels per row or more", RARE_LABELS),
    Constant(_FOREST, "_WIDER_LISTS_IN_TRAINING", "rows that a rare label learns from", RARE_LABELS),
    Constant(_MULTILABEL, "_SWEEPS", "sweeps over the rows of a rare label per pass", RARE_LABELS),
    Constant(_MULTILABEL, "_SWEEPS_AT_ONCE", "maximum number of sweeps over the rows of a common label", COMMON_LABELS),
    Constant(_BINARY, "_SOFTNESS", "1 / 2C: fit to the training examples", COMMON_LABELS + RARE_LABELS),
    Constant(_BINARY, "_FARTHEST", "step size at which sweeps end", COMMON_LABELS),
    Constant(_BINARY, "_CLOSE_ENOUGH", "smallest step", COMMON_LABELS, FAR),
    Constant(_BINARY, "_SWEEPS_TO_CHECK", "how often all rows are checked", COMMON_LABELS, (8.0,)),
    Constant(_MULTILABEL, "_NEGLIGIBLE_IN_COMMON", "weights that are dropped", COMMON_LABELS, FAR),
)

RETRIEVER = (
    Constant(_RETRIEVER, "_VALUE_TREES", "trees over values", ("flickr8k",)),
    Constant(_RETRIEVER, "_VALUE_LEAVES", "leaves searched per tree", ("flickr8k",)),
    Constant(_RETRIEVER, "_SURE_MARGIN", "margin above which the other side is not searched", ("flickr8k",)),
    Constant(
        "estimators._values", "_VALUES_LOOKED_AT", "values from which the basis is computed", ("flickr8k",), (0.125,)
    ),
    Constant(_RETRIEVER, "_KEY_TREES", "trees over keys", ("flickr8k, by key",)),
)

TREE = (
    Constant("_forest.insert_remove", "_SPLIT_PASSES", "passes per split", TREES),
    Constant("_forest.routers", "_CLOSE_ENOUGH", "errors that routers learn from", (*TREES, "wikipara1k")),
    Constant(_RANKING, "_STEEPNESS", "logits per unit of score difference", ("tree, ranking",)),
    Constant(_RANKING, "_MARGIN", "MIRA: required score difference", ("tree, mira",)),
    Constant(_RANKING, "_AGGRESSIVENESS", "MIRA: maximum step", ("tree, mira",)),
    Constant(
        _RANKING, "_LEAST_WEIGHT", "smallest weight of a feature", ("tree, ranking", "tree, mira"), (0.125, 1000.0)
    ),
    Constant("_forest.moved_keys", "_STEEPNESS", "learn: lead at which a right memory stops moving", LEARNING),
    Constant("_engine.supervise", "_ROWS_IN_A_BLOCK", "learn: rows per update of the tree", LEARNING),
    Constant("tree", "_LEAVES_OF_EACH", "learn: leaves searched", LEARNING),
    Constant(
        "_engine.supervise",
        "_WORTH_REBUILDING",
        "learn: share of memories in groups from which trees are rebuilt",
        LEARNING,
        FAR,
    ),
    Constant("_forest.partition", "_PASSES", "rebuild: passes of a router", LEARNING),
    Constant("_forest.partition", "_ROUNDS", "rebuild: rounds of 2-means", LEARNING),
    Constant(
        "_forest.partition", "_LEAST_SHARE", "rebuild: smallest share of a side that a router may leave", LEARNING
    ),
    Constant(
        "_engine.insert",
        "_INSERTS_TO_FILL",
        "bounded trees: parts in which memories are replaced",
        ("tree, bounded",),
        FAR,
    ),
    Constant("_forest.filtering", "WORTH_A_LEAF", "among: how many memories are all scored", ("tree, among",), FAR),
    Constant(
        "_forest.linear_model",
        "_CELLS_IN_A_LOOKUP",
        "time only: whether tables are looked up or scanned",
        ("tree, sparse",),
    ),
)

FURTHER = (Constant(_SVM, "_GAPS_IN_A_MARGIN", "required margin, on sets not used for tuning", UNSEEN),)

CONSTANTS = {
    "CMTClassifier": CLASSIFIER,
    "CMTClassifier on further sets": FURTHER,
    "CMTMultilabelClassifier": MULTILABEL,
    "CMTRetriever": RETRIEVER,
    "ContextualMemoryTree": TREE,
}
