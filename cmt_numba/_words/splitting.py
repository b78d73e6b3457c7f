# ruff: noqa: RUF001
r"""Division of texts into words, and the form in which equal words are equal strings.

A word consists of letters, marks and digits. A run of characters in a script without spaces counts as one word here,
which :mod:`.terms` divides further. Symbols are words where they tell texts apart: currencies, emoji, signs of
arithmetic, emoticons, and the ends of "c++" and "c#". Other punctuation separates words.

Texts are compared after compatibility normalisation (NFKC) and case folding. Words are folded further, so that Arabic,
Hebrew, Syriac and Greek words are equal with and without vowel signs and accents.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache

LETTERS_ALONE = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF))
"""Alphabets that are written without spaces: Thai, Lao, Burmese and Khmer."""
_SIGNS_ALONE = ((0x2600, 0x27BF), (0x3040, 0x30FF), (0x3400, 0x9FFF), (0xF900, 0xFAFF))  # Japanese, Chinese, dingbats
ALONE = (*LETTERS_ALONE, *_SIGNS_ALONE, (0x1F000, 0x1FAFF), (0x20000, 0x3FFFF))  # and emoji
"""Ranges of characters that are words by themselves."""
_LATER_LETTERS = "\U00010000-\U0001efff"  # all characters here count as letters: bitmaps end before, so tests are slow

# Between words. A sign of arithmetic is between numbers or spaces; an emoticon has eyes, perhaps a nose, and a mouth.
_SYMBOLS = r"""(?=[$%+\-*/^<=>:;(])(?:
    \$
    | (?:(?<=\d) | (?<=\d\ ))%
    | (?<!\S)<3(?!\w)
    | (?<![^\s\d])[+<=>]+(?![^\s\d])
    | (?:(?<=\d) | (?<=\d\ ))[\-*/^](?=\ ?\d)
    | (?<![^\s(])-(?=[\d.])
    | (?<!\S)[:;=]'?-?(?:[()\[\]{}|\\/@*]+ | [dDoOpP03])(?![\w/])
    | [:;]'?-?[()]+(?!\w)
    | (?<!\S)\(-?[:;](?!\S)
    | \^[_.\-]?\^
)"""
_ENDS = r"(?:\+\+ | [+#](?!\w))?"  # of "c++", "c#" and "a+"
_FIND_ASCII = re.compile(rf"[0-9A-Za-z]+{_ENDS} | {_SYMBOLS}", re.VERBOSE).findall

_SAME_LETTERS = {  # letters that users of a script interchange
    **dict(zip("ىیکةٱ", "ييكها", strict=True)),  # Arabic and Persian
    **{"ё": "е", "ı": "i", "ș": "ş", "ț": "ţ", "−": "-", "×": "*", "÷": "/"},
}
_FOLDED_LETTERS = str.maketrans(_SAME_LETTERS)
_OPTIONAL_MARKS = re.compile("[\u0370-\u03ff\u0590-\u074f\u0750-\u077f\u08a0-\u08ff\u1f00-\u1fff]")  # scripts
_EMOTICON = re.compile(r"([:;=])'?-?(.)\2*", re.DOTALL)


def characters_of(ranges: Iterable[tuple[int, int]]) -> str:
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


def _characters(accept: Callable[[str], bool]) -> str:
    """Return the inside of a regular expression's class of the characters up to U+FFFF that a function accepts."""
    return "".join(filter(accept, map(chr, range(0x80, 0x10000))))


def _is_inside_words(character: str) -> bool:
    return unicodedata.category(character)[0] == "M" or (
        unicodedata.category(character) == "Cf" and character != "\u200b"  # a space without width
    )


@cache
def _find_all() -> Callable[[str], list[str]]:
    """Return the function that finds the words in folded text of any script. Its pattern takes a while to make."""
    alone = characters_of(ALONE)
    letters = f"[^\\W_{alone}]"
    marks = f"(?![\\x00-\\x7f])[{_characters(_is_inside_words)}{_LATER_LETTERS}]"
    words = f"{letters}+(?:{marks}+{letters}*)*"
    symbols = _characters(lambda character: unicodedata.category(character) in ("Sc", "Sm", "So"))
    pattern = f"{words}{_ENDS} | [{alone}]+ | (?![\\x00-\\x7f])[{symbols}] | {_SYMBOLS}"
    return re.compile(pattern, re.VERBOSE).findall


def split_words(text: str, *, keep_case: bool = False) -> list[str]:
    """Return the words of a text, normalised but not folded by :func:`fold_word`."""
    if text.isascii():
        return _FIND_ASCII(text if keep_case else text.lower())
    text = unicodedata.normalize("NFKC", text)
    return _find_all()(text if keep_case else unicodedata.normalize("NFC", text.casefold()))


def fold_word(word: str) -> str:
    """Return the form of a word that all its spellings share, or an empty string if only ignored characters remain."""
    if word[0] in ":;=" and len(word) > 1:
        return _EMOTICON.sub(r"\1\2", word)
    if word.isascii():
        return word
    if _OPTIONAL_MARKS.search(word):
        word = unicodedata.normalize("NFD", word)
        word = "".join(c for c in word if unicodedata.category(c) != "Mn" and c != "\u0640")  # a stretched line
    word = word.replace("i\u0307", "i").translate(_FOLDED_LETTERS)  # the lower case of the Turkish capital letter
    return "".join(map(_fold_character, word))


def _fold_character(character: str) -> str:
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    is_ignored = unicodedata.category(character) == "Cf" or "\ufe00" <= character <= "\ufe0f"  # variants of emoji
    return "" if is_ignored else character
