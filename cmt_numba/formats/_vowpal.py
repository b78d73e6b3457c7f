"""Reader for files of Vowpal Wabbit."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from math import isfinite

import numpy as np
import scipy.sparse

from ._files import CellError, FormatError
from ._labels import LabelScan, convert_labels
from ._source import Batch, ReadOptions, Source

_N_BITS = 18  # as in Vowpal Wabbit


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
        if not options.with_labels:
            return options
        labels = LabelScan(keeps_text=False)
        labels.look_at(_label(_head(line)) for line in chain.from_iterable(lines for _, lines in self._blocks()))
        return labels.completed(options)

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        from sklearn.feature_extraction import FeatureHasher  # slow to import

        hasher = FeatureHasher(options.n_features, input_type="pair", dtype=np.float32, alternate_sign=False)
        n_labels = 0
        for start, lines in self._blocks():
            numbers = [number for number, line in enumerate(lines, start) if line.strip()]
            if not numbers:
                continue
            rows = [self._parsed(lines[number - start], number) for number in numbers]
            with np.errstate(over="ignore"):  # the hasher adds values with the same hash
                X = scipy.sparse.csr_array(hasher.transform(features for _, features in rows))
            if not np.isfinite(X.data).all():
                reason = "this or a later line has a value that is not finite in float32"
                raise FormatError(self.path, reason, line=start)
            y = None
            if options.with_labels:
                try:
                    y = convert_labels((label for label, _ in rows), options, n_labels)
                except CellError as error:
                    raise FormatError(self.path, str(error), line=numbers[error.position]) from None
                n_labels = y.shape[1] if options.task == "multilabel" else 0
            yield Batch(X, y)

    def _parsed(self, line: bytes, number: int) -> tuple[str | None, list[tuple[str, float]]]:
        """Return the label and the features of a line."""
        try:
            if b"|" not in line:
                raise ValueError("has no | between the label and the features")
            if self.options.with_labels:
                _check_head(_head(line))
            return _label(_head(line)), _features(line.partition(b"|")[2].decode("utf-8", "replace"))
        except ValueError as error:
            raise FormatError(self.path, str(error), line=number) from None


def _head(line: bytes) -> str:
    """Return the text before the first bar."""
    return line.partition(b"|")[0].decode("utf-8", "replace")


def _label(head: str) -> str | None:
    """Return the label, or the labels separated by commas."""
    words = head.split(None, 1)
    return words[0] if words and not words[0].startswith("'") else None


def _check_head(head: str) -> None:
    """Raise ValueError if the text before the first bar is not ``label importance 'tag``."""
    words = head.split()
    if ":" in (_label(head) or ""):
        raise ValueError(f"label {words[0]!r} has a cost, which is not supported; remove the cost")
    touches = bool(head) and not head[-1].isspace()  # a word that touches the bar is a tag, unless it is the label
    if words and (words[-1].startswith("'") or (touches and len(words) > 1)):
        words.pop()
    if len(words) > 3 or any(_finite(number) is None for number in words[1:]):
        raise ValueError(f"{head.strip()!r} must have the format: label importance 'tag")


def _features(body: str) -> list[tuple[str, float]]:
    """Return the features after the first bar, with the names of their namespaces."""
    features: list[tuple[str, float]] = []
    for part in body.split("|"):
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
    number = _finite(text) if colon else 1.0
    if number is None:
        raise ValueError(f"{word!r} must be a name, or a name, a colon and a finite number")
    return name, number


def _finite(text: str) -> float | None:
    """Parse a finite number. Return None for any other text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
