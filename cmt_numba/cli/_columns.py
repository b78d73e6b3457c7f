"""Transformers of texts and table rows to features, and their storage in model files."""

from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from .. import text as text
from .._forest import require
from .._words import words_of
from ..evaluation import RIVALS
from ..formats import ReadOptions, kinds_of
from ..persistence import ArrayField, Arrays, DocumentField, FieldTable, FlagField, TextsField, take
from ._options import TextKeys

_NAMES = TextsField(are_distinct=True)
_COLUMNS = FieldTable(
    sparse=FlagField(),
    numbers=_NAMES,
    mean=ArrayField(np.float64),
    scale=ArrayField(np.float64),
    categories=_NAMES,
    known=DocumentField(),
    texts=_NAMES,
)
_TEXT = text.VectorizerField()


def new_vectorizer(keys: TextKeys, *, jobs: int, seed: int) -> Any:
    """Return an unfitted vectorizer for texts."""
    if keys is TextKeys.words:
        return TfidfVectorizer(analyzer=words_of, sublinear_tf=True, dtype=np.float32)
    if keys is TextKeys.characters:
        return TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, dtype=np.float32)
    if keys is TextKeys.bm25:
        return text.BM25Vectorizer(norm="l2")  # suits estimators, which train on document vectors
    return text.SubwordVectors(min_count=1, pooling="sif", n_jobs=jobs, random_state=seed)


def new_columns(kinds: Sequence[str]) -> Any:
    """Return an unfitted transformer of data frames with columns of the given kinds.

    Numbers are scaled to mean 0 and variance 1, and missing numbers become 0. Categories become one-hot columns, which
    are all 0 for unknown categories. Texts become tf-idf vectors of their words. If there are also numbers or
    categories, words that occur in only one row are ignored, because a classifier can use them to memorise rows.
    """
    found = kinds_of(kinds)
    wanted = ("number", "category")
    numbers, categories = ([name for name, kind in found.items() if kind == one] for one in wanted)
    parts: list[Any] = []
    if numbers:
        parts.append(("number", _scaled(StandardScaler()), numbers))
    if categories:
        parts.append(("category", OneHotEncoder(handle_unknown="ignore", dtype=np.float32), categories))
    for name, kind in found.items():
        if kind == "text":
            least = 2 if numbers or categories else 1
            words = TfidfVectorizer(analyzer=words_of, sublinear_tf=True, min_df=least, dtype=np.float32)
            parts.append((f"text {name}", words, name))
    return ColumnTransformer(parts, verbose_feature_names_out=_name_of_feature)


def keys_of_rows(X: Any, options: ReadOptions) -> tuple[Any, Any]:
    """Fit a transformer to rows; return the keys and the transformer, or None if the rows are keys already."""
    if not options.kinds:
        return X, None
    columns = new_columns(options.kinds)
    try:
        with np.errstate(invalid="ignore"):  # a column of missing numbers has no mean
            return columns.fit_transform(X), columns
    except ValueError as error:
        hint = "ignore a text column with --ignore, or change its kind with --kind"
        raise ValueError(f"the columns cannot be converted to features: {error}; {hint}") from error


def texts_of_rows(X: Any, options: ReadOptions) -> list[str] | None:
    """Return the text of each row, joined from all text columns, or None if there are no text columns."""
    if options.as_text:
        return list(X)
    names = [name for name, kind in kinds_of(options.kinds or ()).items() if kind == "text"]
    if not names:
        return None
    columns = [X[name].astype(str).tolist() for name in names]
    return [" ".join(row) for row in zip(*columns, strict=True)]


def rivals_but(without: Sequence[str], texts: Sequence[str] | None) -> list[str]:
    """Return the names of all applicable rivals except those in ``without``."""
    return [name for name in RIVALS if name not in without and (name != "bm25" or texts is not None)]


def _scaled(scaler: Any) -> Pipeline:
    return make_pipeline(scaler, FunctionTransformer(np.nan_to_num, feature_names_out="one-to-one"))


def _name_of_feature(part: str, name: str) -> str:
    """Return the name of a feature. The name of a word starts with its column."""
    column = part.removeprefix("text ")
    return name if column == part else f"{column}: {name}"


class ColumnsField:
    """A fitted column transformer."""

    def put(self, name: str, value: Any, arrays: Arrays) -> Any:
        numbers, categories, texts = [], [], []
        scaler, encoder, vectorizers = SimpleNamespace(mean_=np.zeros(0), scale_=np.zeros(0)), None, []
        for part, fitted, chosen in value.transformers_:
            if part == "number":
                numbers, scaler = list(chosen), fitted[0]
            elif part == "category":
                categories, encoder = list(chosen), fitted
            elif part.startswith("text "):
                texts.append(chosen)
                vectorizers.append(fitted.estimator if isinstance(fitted, FrozenEstimator) else fitted)
        known = [] if encoder is None else [list(map(str, values)) for values in encoder.categories_]
        parts = SimpleNamespace(sparse=value.sparse_output_, numbers=numbers, mean=scaler.mean_, scale=scaler.scale_)
        vars(parts).update(categories=categories, known=known, texts=texts)
        described = [_TEXT.put(f"{name}.text{i}", part, arrays) for i, part in enumerate(vectorizers)]
        return _COLUMNS.put(name, parts, arrays) | {"vectorizers": described}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> Any:
        found = _COLUMNS.get(name, field, arrays, thorough=thorough)
        parts: list[Any] = []
        row: dict[str, list[Any]] = {}  # fitting on this one row completes the transformer, whose parts are frozen
        if names := found["numbers"]:
            scaler = _scaler(names, found["mean"], found["scale"])
            parts.append(("number", FrozenEstimator(_scaled(scaler)), names))
            row |= {column: [0.0] for column in names}
        if names := found["categories"]:
            values = found["known"]
            sound = type(values) is list and len(values) == len(names) and all(map(_are_distinct, values))
            require(sound, "every column must have distinct categories")
            known = [np.array(column, object) for column in values]
            encoder = OneHotEncoder(categories=known, handle_unknown="ignore", dtype=np.float32)
            parts.append(("category", encoder, names))
            row |= {column: [one[0]] for column, one in zip(names, values, strict=True)}
        described = take(field, "vectorizers", list)
        require(len(described) == len(found["texts"]), "every text column must have a vectorizer")
        for i, (column, one) in enumerate(zip(found["texts"], described, strict=True)):
            vectorizer = _TEXT.get(f"{name}.text{i}", one, arrays, thorough=thorough)
            parts.append((f"text {column}", FrozenEstimator(vectorizer), column))
            row[column] = [""]
        require(len(parts) > 0, "the columns are missing")
        threshold = 1.0 if found["sparse"] else 0.0
        made = ColumnTransformer(parts, sparse_threshold=threshold, verbose_feature_names_out=_name_of_feature)
        return made.fit(import_module("pandas").DataFrame(row))


def n_columns(columns: Any) -> int:
    """Return the number of features that a column transformer produces."""
    return max(int(part.stop) for part in columns.output_indices_.values())


def _scaler(names: list[str], mean: np.ndarray, scale: np.ndarray) -> Any:
    scaler = StandardScaler()
    sound = mean.shape == scale.shape == (len(names),) and bool(np.all(np.isfinite(scale) | np.isnan(mean)))
    require(sound, "every numeric column must have a mean and a scale")
    scaler.mean_, scaler.scale_ = mean, scale
    scaler.n_features_in_, scaler.feature_names_in_ = len(names), np.array(names, object)
    return scaler


def _are_distinct(values: Any) -> bool:
    is_list = type(values) is list and len(values) > 0 and all(type(value) is str for value in values)
    return is_list and len(set(values)) == len(values)
