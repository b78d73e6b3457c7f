"""Transformers of texts and table rows to features, and their storage in model files."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from .. import text as text
from .._forest import require
from ..evaluation import RIVALS
from ..formats import ReadOptions, kinds_of
from ..persistence import Contents, document, read_array, read_document, take
from ._options import TextKeys

KIND = ColumnTransformer.__name__


def new_vectorizer(keys: TextKeys, *, jobs: int, seed: int) -> Any:
    """Return an unfitted vectorizer for texts."""
    if keys is TextKeys.words:
        return TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
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
    numbers, categories = (
        [name for name, kind in found.items() if kind == wanted] for wanted in ("number", "category")
    )
    parts: list[Any] = []
    if numbers:
        parts.append(("number", _scaled(StandardScaler()), numbers))
    if categories:
        parts.append(("category", OneHotEncoder(handle_unknown="ignore", dtype=np.float32), categories))
    for name, kind in found.items():
        if kind == "text":
            least = 2 if numbers or categories else 1
            parts.append((f"text {name}", TfidfVectorizer(sublinear_tf=True, min_df=least, dtype=np.float32), name))
    return ColumnTransformer(parts)


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
    return make_pipeline(scaler, FunctionTransformer(np.nan_to_num))


def contents_of_columns(columns: Any) -> Contents:
    """Return the contents that store a fitted column transformer in a file."""
    fields: dict[str, Any] = {"sparse": bool(columns.sparse_output_), "texts": {}}
    arrays: dict[str, np.ndarray] = {}
    for name, part, chosen in columns.transformers_:
        if name == "number":
            fields["numbers"] = list(chosen)
            arrays |= {"mean": part[0].mean_, "scale": part[0].scale_}
        elif name == "category":
            fields["categories"] = list(chosen)
            arrays["categories"] = document([list(map(str, values)) for values in part.categories_])
        elif name.startswith("text "):
            prefix = f"text{len(fields['texts'])}"
            fields["texts"][chosen], kept = text.with_prefix(prefix, text.contents_of(part))
            arrays |= kept
    return Contents(KIND, fields, arrays)


def columns_of(contents: Contents) -> Any:
    """Return the fitted column transformer that file contents describe."""
    fields, arrays = contents.fields, contents.arrays
    parts: list[Any] = []
    row: dict[str, list[Any]] = {}  # fitting on this one row completes the transformer, whose parts are frozen
    if "numbers" in fields:
        names = _names(fields, "numbers")
        parts.append(("number", FrozenEstimator(_scaled(_scaler(names, arrays))), names))
        row |= {name: [0.0] for name in names}
    if "categories" in fields:
        names = _names(fields, "categories")
        values = read_document(arrays, "categories")
        sound = type(values) is list and len(values) == len(names) and all(map(_are_distinct, values))
        require(sound, "every column must have distinct categories")
        known = [np.array(column, object) for column in values]
        parts.append(("category", OneHotEncoder(categories=known, handle_unknown="ignore", dtype=np.float32), names))
        row |= {name: [column[0]] for name, column in zip(names, values, strict=True)}
    for place, (name, described) in enumerate(take(fields, "texts", dict).items()):
        vectorizer = text.vectorizer_of(text.of_prefix(f"text{place}", described, arrays), {})
        parts.append((f"text {name}", FrozenEstimator(vectorizer), name))
        row[name] = [""]
    require(len(parts) > 0, "the columns are missing")
    made = ColumnTransformer(parts, sparse_threshold=1.0 if take(fields, "sparse", bool) else 0.0)
    return made.fit(import_module("pandas").DataFrame(row))


def n_columns(columns: Any) -> int:
    """Return the number of features that a column transformer produces."""
    return max(int(part.stop) for part in columns.output_indices_.values())


def _scaler(names: list[str], arrays: dict[str, np.ndarray]) -> Any:
    scaler = StandardScaler()
    mean, scale = (read_array(name, arrays, np.float64) for name in ("mean", "scale"))
    sound = mean.shape == scale.shape == (len(names),) and bool(np.all(np.isfinite(scale) | np.isnan(mean)))
    require(sound, "every numeric column must have a mean and a scale")
    scaler.mean_, scaler.scale_ = mean, scale
    scaler.n_features_in_, scaler.feature_names_in_ = len(names), np.array(names, object)
    return scaler


def _names(fields: dict[str, Any], name: str) -> list[str]:
    names = take(fields, name, list)
    require(len(names) > 0 and _are_distinct(names), f"{name} must be distinct column names")
    return list(names)


def _are_distinct(values: Any) -> bool:
    is_list = type(values) is list and len(values) > 0 and all(type(value) is str for value in values)
    return is_list and len(set(values)) == len(values)
