"""Reader for Vowpal Wabbit text files."""

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from .._arrays import label_array
from ._source import Batch, ReadOptions, Source
from ._text import FormatError, LineBlock, check_labels, indicator, is_name, label_list, read_blocks, whole_number


class VowpalSource(Source):
    """A file with lines of the form ``label importance 'tag|namespace:weight feature:value ... |namespace ...``.

    Feature names, prefixed with their namespace, are hashed into ``2**n_bits`` features. Importance and tag are
    ignored. A line may have several labels (``1,4,7``) or none.
    """

    format = "vw"
    suffixes = (".vw",)

    def _scanned(self) -> ReadOptions:
        options = replace(self.options, n_features=2**self.options.n_bits)
        if not options.with_labels or (options.task is not None and options.named_labels is not None):
            return options
        several, named = options.task == "multilabel", False
        for block in self._blocks():
            self._watch(block.position)
            for line in block.data.splitlines():
                label = line.partition(b"|")[0].split()[:1]
                if label and not label[0].startswith(b"'"):
                    text = label[0].decode("utf-8", "replace")
                    several = several or (b"," in label[0] and label_list(text) is not None)
                    named = named or is_name(text)
        task = options.task or ("multilabel" if several else "multiclass")
        return replace(options, task=task, named_labels=named and task == "multiclass")

    def _blocks(self) -> Iterator[LineBlock]:
        return read_blocks(self.path, self.block_bytes)

    def _chunks(self, options: ReadOptions) -> Iterator[Batch]:
        from sklearn.feature_extraction import FeatureHasher  # slow to import

        hasher = FeatureHasher(options.n_features, input_type="pair", dtype=np.float32, alternate_sign=False)
        n_labels = 0
        for block in self._blocks():
            lines = list(self._parsed(block, options))
            if not lines:
                continue
            # The hasher adds values with the same hash, and the sum may overflow float32.
            with np.errstate(over="ignore"):
                X = scipy.sparse.csr_array(hasher.transform(line.features for line in lines))
            if not np.isfinite(X.data).all():
                reason = "this or a later line has a value that is not finite in float32"
                raise FormatError(self.path, reason, line=block.first_line)
            y = _as_y([line.labels for line in lines], options, n_labels)
            if options.task == "multilabel" and y is not None:
                n_labels = y.shape[1]
            yield Batch(X, y, block.position)

    def _parsed(self, block: LineBlock, options: ReadOptions) -> "Iterator[_Line]":
        for number, line in enumerate(block.data.splitlines(), block.first_line):
            if not line.strip():
                continue
            try:
                yield _parsed_line(line.decode("utf-8", "replace"), options)
            except ValueError as error:
                raise FormatError(self.path, str(error), line=number) from None


class _Line(NamedTuple):
    labels: Any  # int, str, list of int, or None
    features: list[tuple[str, float]]


def _parsed_line(line: str, options: ReadOptions) -> _Line:
    head, bar, body = line.partition("|")
    if not bar:
        raise ValueError("has no | between the label and the features")
    features: list[tuple[str, float]] = []
    for part in body.split("|"):
        names = part.split()
        prefix, weight = "", 1.0
        if names and not part[0].isspace():
            name, weight = _name_and_number(names[0])
            prefix, names = f"{name}^", names[1:]
        for text in names:
            name, value = _name_and_number(text)
            features.append((prefix + name, weight * value))
    return _Line(_parsed_head(head, options) if options.with_labels else None, features)


def _name_and_number(text: str) -> tuple[str, float]:
    """Split ``name:number`` and return both parts. The number defaults to 1."""
    name, colon, number = text.partition(":")
    if not colon:
        return name, 1.0
    try:
        value = float(number)
    except ValueError:
        raise ValueError(f"{text!r} must be a name or name:number") from None
    if not isfinite(value):
        raise ValueError(f"{text!r} is not finite")
    return name, value


def _parsed_head(head: str, options: ReadOptions) -> Any:
    """Return the label, or the list of labels, in the text before the first bar."""
    words = head.split()
    touches = bool(head) and not head[-1].isspace()  # a word that touches the bar is a tag, unless it is the label
    tagged = bool(words) and (words[-1].startswith("'") or (touches and len(words) > 1))
    numbers = words[1:-1] if tagged else words[1:]
    label = "" if not words or words[0].startswith("'") else words[0]
    if ":" in label:
        raise ValueError(f"label {label!r} has a cost, which is not supported; remove the cost")
    if len(numbers) > 2 or any(is_name(number) or not isfinite(float(number)) for number in numbers):
        raise ValueError(f"{head.strip()!r} must have the format: label importance 'tag")
    if options.task == "multilabel":
        labels = label_list(label)
        if labels is None:
            raise ValueError(f"labels must be integers, got {label!r}")
        check_labels(labels)
        return labels
    if not label:
        raise ValueError("has no label")
    if options.named_labels:
        return label
    number = whole_number(label)
    if number is None:
        raise ValueError(f"label {label!r} is not an integer")
    return number


def _as_y(labels: list[Any], options: ReadOptions, n_labels: int) -> Any:
    if not options.with_labels:
        return None
    if options.task == "multilabel":
        return indicator(labels, n_labels)
    return label_array("labels", labels) if options.named_labels else np.array(labels, np.int64)
