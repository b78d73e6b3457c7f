"""The schema of a sharded store, which the memories in all its shards share."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from ..store import Key
from ._errors import ShardConflictError

_DESCRIPTIONS = {
    "metric": "has the metric {}",
    "n_features": "contains vectors of {} features",
    "key_type": "contains keys of type {}",
}
_KEY_TYPES = {"str": "strings", "int": "integers"}


class Schema(NamedTuple):
    """The metric of a store, the width and sparsity of its vectors, and its key type. Undecided fields are None."""

    metric: str | None = None
    n_features: int | None = None
    is_sparse: bool | None = None
    key_type: str | None = None  # "str" or "int"

    @classmethod
    def of(cls, keys: list[Key], X: Any) -> Self:
        """Return the schema of new memories, without a metric. Without vectors, their width and form are undecided."""
        width, is_sparse = (None, None) if X is None else (X.shape[1], scipy.sparse.issparse(X))
        return cls(None, width, is_sparse, type(keys[0]).__name__)

    def __or__(self, other: Self) -> Self:
        """Return this schema with its undecided fields taken from ``other``."""
        undecided = [field for field in self._fields if getattr(self, field) is None]
        return self._replace(**{field: getattr(other, field) for field in undecided})

    def admits(self, other: Self) -> bool:
        """Return whether memories with the schema ``other`` can be added. Their vectors may be sparse or dense."""
        fits = other.n_features is None or (self.is_sparse is not None and self.n_features == other.n_features)
        return fits and self.key_type == other.key_type

    def check(self, other: Self) -> None:
        """Raise TypeError or ValueError if memories with the schema ``other`` cannot be added."""
        if None not in (self.n_features, other.n_features) and self.n_features != other.n_features:
            raise ValueError(
                f"X must have {self.n_features} features, like the vectors in the store, got {other.n_features}"
            )
        if self.key_type not in (None, other.key_type):
            mine, others = (_KEY_TYPES[str(one.key_type)] for one in (self, other))
            raise TypeError(f"keys must be {mine}, like the keys in the store, got {others}")

    def to_form(self, X: Any) -> Any:
        """Convert vectors to a sparse or dense array, as the schema requires."""
        if X is None or self.is_sparse == scipy.sparse.issparse(X):
            return X
        return scipy.sparse.csr_array(X) if self.is_sparse else np.asarray(X.toarray())


def common_schema(schemas: Mapping[str, Schema]) -> Schema:
    """Return the combined schema of all shards. ``schemas`` contains each shard's schema by name."""
    common = Schema()
    for field, words in _DESCRIPTIONS.items():
        names: dict[Any, str] = {}
        for name, schema in schemas.items():
            if (value := getattr(schema, field)) is not None:
                names.setdefault(value, name)
        if len(names) > 1:
            raise ShardConflictError(", and ".join(f"{name} {words.format(value)}" for value, name in names.items()))
        common = common._replace(**{field: next(iter(names), None)})
    forms = [schema.is_sparse for schema in schemas.values() if schema.is_sparse is not None]
    return common._replace(is_sparse=all(forms) if forms else None)
