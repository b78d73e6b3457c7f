"""What all shards of a store have in common: the metric, the width and form of vectors, and the type of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from ..store._checks import Key
from ._errors import ShardConflictError

_WORDS = {
    "metric": "has the metric {}",
    "n_features": "holds vectors of {} features",
    "key_type": "holds keys of the type {}",
}
_NAMES = {"str": "strings", "int": "integers", None: "nothing"}


class Schema(NamedTuple):
    """What all memories of a store have in common; a field is None until it is decided.

    Attributes
    ----------
    metric : str or None
        The metric.
    n_features : int or None
        The width of vectors.
    is_sparse : bool or None
        Whether vectors are stored as sparse rows.
    key_type : {"str", "int"} or None
        The type of keys.
    """

    metric: str | None = None
    n_features: int | None = None
    is_sparse: bool | None = None
    key_type: str | None = None

    @classmethod
    def of(cls, keys: list[Key], X: Any) -> Self:
        """Return the schema of memories that are to be added."""
        return cls(None, X.shape[1], scipy.sparse.issparse(X), type(keys[0]).__name__)

    @property
    def is_complete(self) -> bool:
        """Whether everything is decided."""
        return None not in self

    def __or__(self, other: Self) -> Self:
        """Return this schema with the fields of another one where nothing is decided."""
        return self._replace(
            **{field: value for field, value in other._asdict().items() if getattr(self, field) is None}
        )

    def admits(self, other: Self) -> bool:
        """Return whether memories of another schema may be added. They may be sparse or dense."""
        return self.is_complete and (self.n_features, self.key_type) == (other.n_features, other.key_type)

    def check(self, other: Self) -> None:
        """Raise TypeError or ValueError if memories of another schema cannot be added."""
        if self.n_features not in (None, other.n_features):
            raise ValueError(
                f"X must have {self.n_features} features like the vectors in the store, not {other.n_features}"
            )
        if self.key_type not in (None, other.key_type):
            raise TypeError(
                f"keys must be {_NAMES[self.key_type]} like those in the store, not {_NAMES[other.key_type]}"
            )

    def to_form(self, X: Any) -> Any:
        """Return vectors in the form that was decided."""
        if self.is_sparse is None or self.is_sparse == scipy.sparse.issparse(X):
            return X
        return scipy.sparse.csr_array(X) if self.is_sparse else np.asarray(X.toarray())


def common_schema(schemas: Mapping[str, Schema]) -> Schema:
    """Return the schema of all shards.

    Parameters
    ----------
    schemas : mapping of str to Schema
        What each shard holds, by its name.

    Raises
    ------
    ShardConflictError
        If shards hold what cannot be in one store.
    """
    common = Schema()
    for field, words in _WORDS.items():
        names: dict[Any, str] = {}
        for name, schema in schemas.items():
            if (value := getattr(schema, field)) is not None:
                names.setdefault(value, name)
        if len(names) > 1:
            found = ", and ".join(f"{name} {words.format(value)}" for value, name in names.items())
            raise ShardConflictError(found)
        common = common._replace(**{field: next(iter(names), None)})
    forms = [schema.is_sparse for schema in schemas.values() if schema.is_sparse is not None]
    return common._replace(is_sparse=all(forms) if forms else None)
