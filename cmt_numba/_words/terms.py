"""Search terms: words, and parts of words by which texts with other forms of a word are found."""

import re
from collections.abc import Callable
from itertools import chain, compress
from operator import add
from typing import Any
from zlib import crc32

import numpy as np

from .splitting import ALONE, LETTERS_ALONE, characters_of, fold_word, split_words
from .tokenizers import Tokenizer, words_by

N_WORDS = 2**31 - 1
"""Number of hashes of words."""

SHORTEST, LONGEST = 4, 5
"""Lengths of the beginning that stands for a word with other endings."""
_MOST_REMEMBERED = 1 << 16  # words
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing
_ENDS = "+#"
_DIGIT = re.compile(r"\d")
_HANGUL = re.compile("[\uac00-\ud7a3]+")
_ARABIC_ARTICLE = re.compile("[وفبكل]?ال(?=\\w{3})")
_RUNS = re.compile(f"[{characters_of(LETTERS_ALONE)}]+|[^{characters_of(LETTERS_ALONE)}]+")
is_alone = re.compile(f"[{characters_of(ALONE)}]").match
"""Return whether a word begins with a character that is a word by itself."""


class _Remembered(dict[str, Any]):
    """The results of a function of a word."""

    def __init__(self, function: Callable[[str], Any]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, word: str) -> Any:
        found = self._function(word)
        if not is_alone(word):  # long runs are rarely repeated
            if len(self) >= _MOST_REMEMBERED:
                self.clear()
            self[word] = found
        return found


def _pairs(word: str) -> list[str]:
    return list(map(add, word, word[1:]))


def _terms_of_run(run: str) -> list[str]:
    """Return the terms of a run in scripts without spaces: triples and pairs of letters, or pairs and characters."""
    terms: list[str] = []
    for part in _RUNS.findall(run):
        is_alphabet = LETTERS_ALONE[0][0] <= ord(part[0]) <= LETTERS_ALONE[-1][1]
        pairs = _pairs(part)
        terms += pairs
        terms += map(add, pairs, part[2:]) if is_alphabet and pairs else part
    return terms


def _words_of_token(token: str) -> list[str]:
    if is_alone(token):
        return list(token)
    word = fold_word(token)
    return [word] if word else []


def _terms_of_token(token: str) -> list[str]:
    if is_alone(token):
        return _terms_of_run(token)
    word = fold_word(token)
    stem = word.rstrip(_ENDS)
    terms = [word, stem] if word != stem and len(stem) > 1 else [word] if word else []
    if _DIGIT.search(stem):
        return terms
    if _HANGUL.fullmatch(stem):
        return terms + (_pairs(stem) if len(stem) > 2 else [])
    article = _ARABIC_ARTICLE.match(stem)
    if article is not None:
        stem = stem[article.end() :]
        terms.append(stem)
    if len(stem) > SHORTEST:
        terms.append(stem[: min(len(stem) - 1, LONGEST)])
    return terms


def hash_term(term: str) -> int:
    """Return the hash of a term."""
    return crc32(term.encode()) % N_WORDS


_FOLDED = _Remembered(lambda token: token if is_alone(token) else fold_word(token))
_WORDS, _TERMS = _Remembered(_words_of_token), _Remembered(_terms_of_token)
_HASHES = _Remembered(lambda token: list(map(hash_term, _terms_of_token(token))))


def whole_words_of(text: str, tokenizer: Tokenizer | None = None) -> list[str]:
    """Return the folded words of a text, or those of a tokenizer. Runs in scripts without spaces are not divided."""
    return [_FOLDED[token] for token in split_words(text)] if tokenizer is None else words_by(tokenizer, text)


def fold_text(text: str, tokenizer: Tokenizer | None = None) -> str:
    """Return the words of :func:`whole_words_of` with spaces between them. Spaces in words become no-break spaces."""
    words = whole_words_of(text, tokenizer)
    return " ".join(words if tokenizer is None else filter(None, ("\u00a0".join(word.split()) for word in words)))


def words_of(text: str, *, keep_case: bool = False) -> list[str]:
    """Return the folded words of a text, with each character of a script without spaces as a word."""
    return [word for token in split_words(text, keep_case=keep_case) for word in _WORDS[token]]


def terms_of(text: str, stop_words: frozenset[str] = frozenset()) -> list[str]:
    """Return the words of a text, except stop words, and parts of them: prefixes, and pairs or triples of characters.

    Words with the same beginning share prefixes, so texts are found by other forms of a word.
    """
    each = [_TERMS[token] for token in split_words(text)]
    return [term for terms in each if not stop_words.intersection(terms[:1]) for term in terms]


def hashes_of(words: list[str]) -> list[int]:
    """Return the hash of each term of the words of a text."""
    found = list(map(_HASHES.get, words))
    if None not in found:
        return list(chain.from_iterable(found))  # type: ignore[arg-type]
    return hashes_of_texts([words])[1].tolist()


def hashes_of_texts(texts: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the text and the hash of each term of the words of texts, arrays of int64."""
    text_of_word = np.repeat(np.arange(len(texts)), list(map(len, texts)))
    words = list(chain.from_iterable(texts))
    are_runs = np.array([word not in _HASHES and is_alone(word) is not None for word in words], np.bool_)
    runs = list(compress(words, are_runs))
    found = [_HASHES[word] for word in (compress(words, ~are_runs) if runs else words)]
    rows = np.repeat(text_of_word[~are_runs], list(map(len, found)))
    hashes = np.fromiter(chain.from_iterable(found), np.int64, rows.size)
    if not runs:
        return rows, hashes
    hashes_of_runs, kinds = _hashes_of_runs(runs)
    text_of_code = np.repeat(text_of_word[are_runs], [len(run) + 1 for run in runs])
    rows_of_runs = [text_of_code[: kind.size][kind] for kind in kinds]
    return np.concatenate([rows, *rows_of_runs]), np.concatenate([hashes, hashes_of_runs])


def _hashes_of_runs(runs: list[str]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the hashes of :func:`_terms_of_run`, computed together: those of strings would take most of the time.

    Also returns masks of the characters at which the single characters, the pairs and the triples begin.
    """
    codes = np.frombuffer(" ".join(runs).encode("utf-32-le"), np.uint32).astype(np.uint64)
    in_alphabet = np.zeros(codes.size, np.bool_)
    for first, last in LETTERS_ALONE:
        in_alphabet |= (codes >= first) & (codes <= last)
    is_sign = ~in_alphabet & (codes != ord(" "))
    are_pairs = (in_alphabet[:-1] & in_alphabet[1:]) | (is_sign[:-1] & is_sign[1:])
    are_triples = are_pairs[:-1] & are_pairs[1:] & in_alphabet[2:]
    is_single = is_sign.copy()
    is_single |= in_alphabet & ~np.append(are_pairs, False) & ~np.append(False, are_pairs)
    pairs = codes[:-1] * _FACTOR + codes[1:]
    triples = pairs[:-1] * _FACTOR + codes[2:]
    hashes = np.concatenate([codes[is_single], pairs[are_pairs], triples[are_triples]]) * _FACTOR
    hashes = ((hashes >> np.uint64(32)) % np.uint64(N_WORDS)).astype(np.int64)
    return hashes, [is_single, are_pairs, are_triples]
