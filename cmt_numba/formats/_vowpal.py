"""Reader for files of Vowpal Wabbit."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np
import scipy.sparse

from ._options import ReadOptions
from ._source import Source

_N_BITS = 18  # as in Vowpal Wabbit
# A word that touches the bar is a tag, unless it is the label.
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_HEAD = re.compile(rf"\s*(?:([^\s':][^\s:]*)(?:\s+{_NUMBER}){{0,2}})?(?:\s*'\S*|\s+\S+(?!\s))?\s*")


class VowpalSource(Source):
    """A file with lines of the form ``label importance 'tag|namespace:weight feature:value ... |namespace ...``.

    Feature names, prefixed with their namespace, are hashed into ``2**n_bits`` features (default 18). Importance and
    tag are ignored. A line may have several labels (``1,4,7``) or none.
    """

    format = "vw"
    suffixes = (".vw",)

    def _scanned(self) -> ReadOptions:
        n_bits = self.options.n_bits or _N_BITS
        options = replace(self.options, n_bits=n_bits, n_features=2**n_bits)
        return self._with_scanned_labels(options, keeps_text=False)

    def _blocks(self, options: ReadOptions) -> Iterator[tuple[Sequence[int], Sequence[bytes]]]:
        return self._lines()

    def _labels(self, rows: Sequence[bytes], options: ReadOptions) -> Sequence[str | None]:
        return list(map(_label, rows))

    def _features(self, rows: Sequence[bytes], options: ReadOptions) -> scipy.sparse.csr_array:
        from sklearn.feature_extraction import FeatureHasher  # slow to import

        hasher = FeatureHasher(options.n_features, input_type="pair", dtype=np.float32, alternate_sign=False)
        with np.errstate(over="ignore"):  # the hasher adds values with the same hash
            X = scipy.sparse.csr_array(hasher.transform(map(_features, rows)))
        if not np.isfinite(X.data).all():
            raise ValueError("has a value that is not finite in float32")
        return X


def _head_and_body(line: bytes) -> tuple[str, str]:
    """Return the text before and after the first bar."""
    head, bar, body = line.decode("utf-8", "replace").partition("|")
    if not bar:
        raise ValueError("has no | between the label and the features")
    return head, body


def _label(line: bytes) -> str | None:
    """Return the label, or the labels separated by commas."""
    head, _ = _head_and_body(line)
    found = _HEAD.fullmatch(head)
    if found is None:
        raise ValueError(f"{head.strip()!r} must have the format: label importance 'tag; costs are not supported")
    return found[1]


def _features(line: bytes) -> list[tuple[str, float]]:
    """Return the features, with the names of their namespaces."""
    features: list[tuple[str, float]] = []
    for part in _head_and_body(line)[1].split("|"):
        pairs = [_name_and_number(word) for word in part.split()]
        prefix, weight = "", 1.0
        if pairs and not part[0].isspace():
            (name, weight), *pairs = pairs
            prefix = f"{name}^"
        features += [(prefix + name, weight * value) for name, value in pairs]
    return features


def _name_and_number(word: str) -> tuple[str, float]:
    """Split ``name:number``. The number defaults to 1."""
    name, colon, text = word.partition(":")
    try:
        number = float(text) if colon else 1.0
    except ValueError:
        number = np.nan
    if not isfinite(number):
        raise ValueError(f"{word!r} must be a name, or a name, a colon and a finite number")
    return name, number
