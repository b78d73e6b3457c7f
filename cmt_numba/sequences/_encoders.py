"""Reduction of texts to the letters of an alphabet."""

import unicodedata


def encode_text(text: str, alphabet: str, unknown: str = "") -> str:
    """Reduce a text to the letters of an alphabet.

    Letters outside the alphabet are replaced by the lower-case or unaccented form of the letter ("ss" for "ß"), if the
    alphabet contains this form, and otherwise by ``unknown``: a letter of the alphabet, or the empty string.

    Examples
    --------
    >>> encode_text("Déjà vu!", "abcdefghijklmnopqrstuvwxyz ")
    'deja vu'
    """
    for name, value in (("text", text), ("alphabet", alphabet), ("unknown", unknown)):
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string, got {type(value).__name__}")
    known = set(alphabet)
    if unknown and unknown not in known:
        raise ValueError(f"unknown must be a letter of the alphabet or empty, got {unknown!r:.40}")
    kept = []
    for letter in unicodedata.normalize("NFC", text):
        plain = "".join(part for part in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(part))
        for form in (letter, letter.lower(), plain, plain.lower(), letter.casefold()):
            if form and set(form) <= known:
                kept.append(form)
                break
        else:
            kept.append(unknown)
    return "".join(kept)
