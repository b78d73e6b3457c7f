"""Conversion of table rows to features, and its storage in model files."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import StandardScaler

from .._kernels import require
from .._words import words_of
from ..formats import ReadOptions, kinds_of
from ..persistence import ArrayField, Arrays, DocumentField, FieldTable, FlagField, TextsField, take
from ..text import TfidfField

_NAMES = TextsField(are_distinct=True)
_FIELDS = FieldTable(
    sparse=FlagField(),
    numbers=_NAMES,
    mean=ArrayField(np.float64),
    scale=ArrayField(np.float64),
    categories=_NAMES,
    known=DocumentField(),
    texts=_NAMES,
)
_VECTORIZER = TfidfField()
_DENSE_FROM = 0.3  # minimum density of features that are kept as an array


class TableFeatures:
    """Conversion of data frames with columns of known kinds to features.

    Numbers are scaled to mean 0 and variance 1, and missing numbers become 0. Categories become one-hot columns, which
    are all 0 for unknown categories. Texts become tf-idf vectors of their words. If there are also numbers or
    categories, words that occur in only one row are ignored, because a classifier can use them to memorise rows.
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        found = kinds_of(kinds)
        names = {kind: [name for name, one in found.items() if one == kind] for kind in ("number", "category", "text")}
        self.numbers, self.categories, self.texts = names.values()
        self.sparse = True  # whether the features are a sparse matrix

    def fit_transform(self, frame: Any) -> Any:
        """Learn the parameters of the columns, and return the features of the rows."""
        self.mean, self.scale = np.zeros(0), np.zeros(0)
        if self.numbers:
            with np.errstate(invalid="ignore"):  # a column of missing numbers has no mean
                scaler = StandardScaler().fit(frame[self.numbers].to_numpy(np.float64))
            self.mean, self.scale = scaler.mean_, scaler.scale_
        self.known = [sorted(set(frame[name])) for name in self.categories]
        least = 2 if self.numbers or self.categories else 1
        words: Any = {"analyzer": words_of, "sublinear_tf": True, "dtype": np.float32, "min_df": least}
        try:
            self.vectorizers = [TfidfVectorizer(**words).fit(frame[name]) for name in self.texts]
        except ValueError as error:
            hint = "ignore a text column with --ignore, or change its kind with --kind"
            raise ValueError(f"the columns cannot be converted to features: {error}; {hint}") from error
        self.sparse = bool(self.categories or self.texts)
        X = self.transform(frame)
        if self.sparse and X.count_nonzero() >= _DENSE_FROM * X.shape[0] * X.shape[1]:
            self.sparse, X = False, X.toarray()
        return X

    def transform(self, frame: Any) -> Any:
        """Return the features of rows."""
        from pandas import Index

        numbers = np.nan_to_num((frame[self.numbers].to_numpy(np.float64) - self.mean) / self.scale).astype(np.float32)
        if not self.categories and not self.texts:
            return numbers
        parts = [scipy.sparse.csr_array(numbers)]
        for name, known in zip(self.categories, self.known, strict=True):
            codes = Index(known, dtype=object).get_indexer(frame[name].astype(object))  # -1 for unknown categories
            rows = np.flatnonzero(codes >= 0)
            parts.append(scipy.sparse.csr_array((np.ones(rows.size), (rows, codes[rows])), (len(frame), len(known))))
        for name, vectorizer in zip(self.texts, self.vectorizers, strict=True):
            parts.append(vectorizer.transform(frame[name]))
        X = scipy.sparse.hstack(parts, format="csr", dtype=np.float32)
        return X if self.sparse else X.toarray()

    def get_feature_names_out(self) -> np.ndarray:
        """Return the name of each feature. The name of a category or word starts with its column."""
        names = list(self.numbers)
        for name, known in zip(self.categories, self.known, strict=True):
            names += [f"{name}_{value}" for value in known]
        for name, vectorizer in zip(self.texts, self.vectorizers, strict=True):
            names += [f"{name}: {word}" for word in vectorizer.get_feature_names_out()]
        return np.array(names, object)


class TableFeaturesField:
    """The field of a file that contains a fitted :class:`TableFeatures`."""

    def put(self, name: str, value: TableFeatures, arrays: Arrays) -> Any:
        described = [_VECTORIZER.put(f"{name}.text{i}", one, arrays) for i, one in enumerate(value.vectorizers)]
        return _FIELDS.put(name, value, arrays) | {"vectorizers": described}

    def get(self, name: str, field: Any, arrays: Arrays, *, thorough: bool) -> TableFeatures:
        made = TableFeatures(())
        vars(made).update(_FIELDS.get(name, field, arrays, thorough=thorough))
        shape = (len(made.numbers),)
        require(made.mean.shape == made.scale.shape == shape, "every number must have a mean and a scale")
        require(bool(np.all(np.isfinite(made.scale) | np.isnan(made.mean))), "the scales must be finite")
        known = made.known
        sound = type(known) is list and len(known) == len(made.categories) and all(map(_are_distinct, known))
        require(sound, "every column must have distinct categories")
        described = take(field, "vectorizers", list)
        require(len(described) == len(made.texts), "every text column must have a vectorizer")
        made.vectorizers = [
            _VECTORIZER.get(f"{name}.text{i}", one, arrays, thorough=thorough) for i, one in enumerate(described)
        ]
        return made


def _are_distinct(values: Any) -> bool:
    is_list = type(values) is list and len(values) > 0 and all(type(value) is str for value in values)
    return is_list and len(set(values)) == len(values)


def to_features(X: Any, options: ReadOptions) -> tuple[Any, TableFeatures | None]:
    """Return the features of rows, and the fitted conversion, or None if the rows are features already."""
    if not options.kinds:
        return X, None
    features = TableFeatures(options.kinds)
    return features.fit_transform(X), features


def has_texts(options: ReadOptions) -> bool:
    """Return whether rows are texts, for a text classifier."""
    return bool(options.text) and options.n_bits is None


def texts_of(X: Any, options: ReadOptions) -> list[str] | None:
    """Return the text of each row, joined from all text columns, or None if there are no text columns."""
    if has_texts(options):
        return list(X)
    names = [name for name, kind in kinds_of(options.kinds or ()).items() if kind == "text"]
    return [" ".join(row) for row in X[names].itertuples(index=False)] if names else None
