"""Hashes of the terms of many plain texts by one kernel, the same as those of :func:`.terms.hashes_of_texts`.

Plain texts are ASCII without symbols that may be words, as most texts in English are.
"""

from zlib import crc32

import numpy as np

from .._jit import inner, kernel
from .terms import LONGEST, N_WORDS, SHORTEST

# Kinds of characters: a hyphen after a letter, a colon before a space and an opening parenthesis before a letter or
# digit separate words. Elsewhere they may be symbols, and so may those of the last kind.
_SEPARATOR, _DIGIT, _LETTER, _HYPHEN, _COLON, _OPENING, _SYMBOL = range(7)
_CHARACTERS = {"-/": _HYPHEN, ":;": _COLON, "(": _OPENING, "$%+*^<=>#": _SYMBOL}
_KIND_OF = {character: kind for characters, kind in _CHARACTERS.items() for character in characters}
_SPACE, _NOT_PLAIN = ord(" "), "$"
_ALL, _BYTE, _EIGHT = np.uint32(0xFFFFFFFF), np.uint32(0xFF), np.uint32(8)


def _kind(character: str) -> int:
    return _LETTER if character.isalpha() else _DIGIT if character.isdigit() else _KIND_OF.get(character, _SEPARATOR)


_KINDS = np.array([_kind(chr(code)) for code in range(128)], np.uint8)
_CRC = np.array([crc32(bytes([255 - low])) ^ 0xFF000000 for low in range(256)], np.uint32)  # of each low byte


@inner
def _is_separator(codes, i, kinds):
    """Return whether a character, no letter or digit, separates words for sure."""
    kind = kinds[codes[i]]
    if kind == _HYPHEN:
        return kinds[codes[i - 1]] == _LETTER
    if kind == _COLON:
        return codes[i + 1] <= _SPACE
    return kind == _SEPARATOR or (kind == _OPENING and _DIGIT <= kinds[codes[i + 1]] <= _LETTER)


@inner
def _as_number(text, crc):
    return np.int64(text) << 32 | np.int64((crc ^ _ALL) % np.uint32(N_WORDS))


@kernel
def _write_terms(codes, stops, kinds, crc, numbers, are_plain):
    """Write a number for each term of plain texts, and which texts are plain; return how many numbers there are.

    ``codes`` are the lower-case characters of all texts, with a separator before them and at each of the ``stops``.
    """
    n, i = 0, 1
    for text in range(stops.size):
        n_before, length, has_digit = n, 0, False
        hashed, of_beginning = _ALL, _ALL
        are_plain[text] = True
        while i <= stops[text]:
            kind = kinds[codes[i]]
            if _DIGIT <= kind <= _LETTER:
                if SHORTEST <= length <= LONGEST:
                    of_beginning = hashed
                hashed = crc[(hashed ^ codes[i]) & _BYTE] ^ (hashed >> _EIGHT)
                length, has_digit = length + 1, has_digit or kind == _DIGIT
            elif _is_separator(codes, i, kinds):
                if length > 0:
                    numbers[n] = _as_number(text, hashed)
                    n += 1
                if length > SHORTEST and not has_digit:
                    numbers[n] = _as_number(text, of_beginning)
                    n += 1
                hashed, length, has_digit = _ALL, 0, False
            else:
                n, are_plain[text] = n_before, False
                break
            i += 1
        i = stops[text] + 1
    return n


def number_plain_terms(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the position and the hash of each term of plain texts as one number, and which texts are plain."""
    ascii_texts = [text if text.isascii() else _NOT_PLAIN for text in texts]
    codes = np.frombuffer("\n".join(["", *ascii_texts, ""]).lower().encode("ascii"), np.uint8)
    stops = np.cumsum([len(text) + 1 for text in ascii_texts])
    numbers, are_plain = np.empty(codes.size // 2 + 1, np.int64), np.empty(len(texts), np.bool_)
    n = _write_terms(codes, stops, _KINDS, _CRC, numbers, are_plain)
    return numbers[:n], are_plain
