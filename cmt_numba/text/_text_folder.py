"""Folders of text classifiers, which journal every change.

``OPERATIONS`` is part of the file format. Never change the arguments or the meaning of an existing name and version.
"""

import zlib
from functools import partial
from typing import Any

import numpy as np

from .._validation import check_parameters
from .._words import check_same_tokenizer, name_of_tokenizer
from ..journal import CURRENT, Entry, ObjectForm, Operation, find_operation
from ..persistence import Contents, generator_digest

_TEXTS = {name: name for name in ("texts", "labels", "ids", "vectors", "seed", "weights", "tokenizer")}
OPERATIONS: dict[tuple[str, int], Operation] = {
    ("fit", 1): Operation("_fit", _TEXTS),
    ("partial_fit", 1): Operation("_partial_fit", _TEXTS),
    ("relabel", 1): Operation("_relabel", {"ids": "ids", "labels": "labels"}),
    ("remove", 1): Operation("_remove", {"ids": "ids"}),
    ("remove_classes", 1): Operation("_remove_classes", {"labels": "labels"}),
    ("calibrate", 1): Operation("_calibrate", {"texts": "texts", "labels": "labels", "vectors": "vectors"}),
}


class TextFolder(ObjectForm):
    """Adapter between a text classifier and its journal."""

    essential = "n_texts", "next_slot"

    def __init__(self, kind: Any, options: dict[str, Any]) -> None:
        super().__init__(kind, options)
        check_parameters(self.owner, kind._constraints)

    def change(self, name: str, arguments: dict[str, Any]) -> None:
        """Change the classifier, and append the entry to the journal."""
        operation = OPERATIONS[name, CURRENT]
        check_same_tokenizer(self.owner.tokenizer, name_of_tokenizer(self.options.get("tokenizer")))

        def make() -> None:
            operation.call(self.owner, operation.called(arguments))
            self.journal.append(Entry(name, arguments, self.fingerprint()))

        self.journal.change(make)

    # The interface of the journal

    def made_of(self, contents: Contents, *, values: bool) -> Any:
        made = super().made_of(contents, values=values)
        made.tokenizer = self.owner.tokenizer
        return made

    def fingerprint(self, made: Any = None) -> dict[str, int]:
        model = (self.owner if made is None else made)._model
        if model is None:
            return {}
        return {
            "n_texts": len(model.stored),
            "next_slot": model.stored.next_slot,
            "generator": generator_digest(model.generator),
            "sums": zlib.crc32(model.sums.squares.tobytes()),
            "duals": zlib.crc32(np.ascontiguousarray(model.sums.duals.weights).tobytes()),
            "weights": zlib.crc32(model.weights.tobytes()),
        }

    def replay(self, made: Any, entry: Entry, exact: bool) -> None:
        operation = find_operation(OPERATIONS, entry.name, entry.version)
        operation.call(made, operation.called(entry.arguments))

    def use(self, made: Any) -> None:
        """Replace the model of the classifier by the model of ``made``, and restore parameters that were not given."""
        classifier = self.owner
        if made._model is not None:
            check_same_tokenizer(classifier.tokenizer, made._model.stored.tokenizer)
        for name in ("encoder", "random_state"):
            if getattr(classifier, name) is None:
                setattr(classifier, name, getattr(made, name))
        self.lock.change(partial(self.lock.step, partial(setattr, classifier, "_model", made._model)))
