"""The vectors and words of queries."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from .._encoder import encode_texts
from .._words import Tokenizer, hash_words
from ._checks import check_texts
from ._spelling import NearWords, correct_words


def read_queries(
    X: Any,
    texts: Any,
    encoder: Any,
    n_features: int | None = None,
    tokenizer: Tokenizer | None = None,
    find_near: Callable[[list[str]], list[NearWords]] | None = None,
) -> tuple[Any, list[Counter[int]] | None]:
    """Return the vectors and the words of queries, None if they have none. The caller checks the vectors.

    ``find_near`` finds corrections of misspelt words; see :func:`correct_words`.
    """
    refuse_texts(X)
    if texts is None:
        if find_near is not None:
            raise ValueError("fuzzy=True replaces words of texts: pass texts, or omit fuzzy")
        if X is None:
            raise TypeError("pass vectors X, texts, or both")
        return X, None
    texts = check_texts(texts)
    if X is None and encoder is not None:
        X = encode_stored(encoder, "encode_query", texts, n_features)
    if find_near is not None:
        return X, correct_words(texts, tokenizer, find_near)
    return X, [hash_words(text, tokenizer) for text in texts]


def encode_stored(encoder: Any, name: str, texts: list[Any], n_features: int | None = None) -> Any:
    """Return the vectors of texts by the method ``name`` of an encoder. Raise ValueError if a text is blank."""
    for position, text in enumerate(texts):
        if not text.strip():
            raise ValueError(f"texts must contain words, got {text!r:.50} at position {position}")
    return encode_texts(encoder, name, texts, n_features)


def refuse_texts(X: Any) -> None:
    """Raise TypeError for texts in the place of vectors."""
    first = X[0] if isinstance(X, list | tuple) and X else X
    if isinstance(first, str):
        raise TypeError(f"X must contain vectors, got the text {first!r:.50}: pass it as texts=...")
