"""Tokenizers of users: functions that return the words of a text. Files keep only their names."""

from collections.abc import Callable, Iterable
from typing import Any

Tokenizer = Callable[[str], Iterable[str]]


def check_tokenizer(tokenizer: Any) -> Any:
    """Return a tokenizer or None. Raise TypeError for anything else."""
    if tokenizer is not None and not callable(tokenizer):
        raise TypeError(f"tokenizer must be a function that takes a text and returns its words, got {tokenizer!r:.50}")
    return tokenizer


def words_by(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the words of a text by a tokenizer. Raise TypeError if they are not strings."""
    words: Any = tokenizer(text)
    listed = [words] if isinstance(words, str) else list(words)
    if isinstance(words, str) or not all(isinstance(word, str) for word in listed):
        raise TypeError(f"tokenizer must return a list of words, got {words!r:.50} for the text {text!r:.50}")
    return listed


def name_of_tokenizer(tokenizer: Any) -> str | None:
    """Return the name of a tokenizer in files, or None for the default words."""
    return None if tokenizer is None else str(getattr(tokenizer, "__qualname__", type(tokenizer).__qualname__))


def check_same_tokenizer(tokenizer: Any, name: str | None) -> None:
    """Raise ValueError unless a tokenizer has the name of the one with which texts were learned or stored."""
    given = name_of_tokenizer(tokenizer)
    if given != name:
        known = "the default words" if name is None else f"the tokenizer {name!r}, which files do not contain"
        wanted = "pass tokenizer=None" if name is None else f"pass it as tokenizer={name}"
        raise ValueError(f"tokenizer must be the one with which the texts were stored: {known}; {wanted}, got {given}")
