"""Encoders, which compute the vectors of texts."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from .._validation import check_encoded
from ._checks import check_texts
from ._words import hash_words


def check_encoder(encoder: Any) -> Any:
    """Return an encoder or None. Raise TypeError for anything else."""
    if encoder is not None and not callable(_function_of(encoder, "encode_query")):
        raise TypeError(f"encoder must be a function of a list of texts or an object with encode, got {encoder!r:.50}")
    return encoder


def _function_of(encoder: Any, name: str) -> Callable[[list[str]], Any]:
    return getattr(encoder, name, None) or getattr(encoder, "encode", encoder)


def read_queries(
    X: Any, texts: Any, encoder: Any, n_features: int | None = None
) -> tuple[Any, list[Counter[int]] | None]:
    """Return the vectors and the words of queries, None if they have none. The caller checks the vectors."""
    if texts is None:
        if X is None:
            raise TypeError("pass vectors X, texts, or both")
        return X, None
    texts = check_texts(texts)
    if X is None and encoder is not None:
        X = encode_texts(encoder, "encode_query", texts, n_features)
    return X, [hash_words(text) for text in texts]


def encode_texts(encoder: Any, name: str, texts: list[Any], n_features: int | None = None) -> Any:
    """Return the vectors of texts by the method ``name`` of an encoder, or else by ``encode``."""
    return check_encoded(_function_of(encoder, name)(texts), len(texts), n_features)
