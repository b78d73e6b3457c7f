"""Text for terminals: control characters from files are escaped."""

from __future__ import annotations

import unicodedata

_ESCAPED = {"Cc", "Cs", "Zl", "Zp"}  # categories: control characters, parts of characters, and ends of lines


def printable(value: object) -> str:
    """Return a value as text, with control characters escaped as in Python literals."""
    return "".join(_escaped(character) if _is_unsafe(character) else character for character in str(value))


def _is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in _ESCAPED


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
