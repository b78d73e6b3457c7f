"""The options of a sharded classifier, and its folder: a list of its shards, and a folder for each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from .._validation import check_integer
from ..estimators import CMTClassifier
from ..persistence import FileFormatError
from ..persistence._container import bring_to_disk

_LIST = "classifier.json"
_KIND, _VERSION = "ShardedClassifier", 1


def check_classifier_options(options: dict[str, Any]) -> None:
    """Raise TypeError or ValueError if these are no parameters of the classifier of a shard."""
    seed = options.get("random_state")
    if seed is not None:
        check_integer("random_state", seed, 0, 2**32 - 1)
    CMTClassifier(**options)._check_parameters()
    if options.get("method", "head") != "head":
        raise ValueError("method must be 'head': votes of neighbors are not compared between shards")
    if not options.get("store_examples", True):
        raise ValueError("store_examples must be True: stored examples say which classes a shard answers for")


def options_of_shard(options: dict[str, Any], number: int, n_shards: int) -> dict[str, Any]:
    """Return the parameters of the classifier of one shard: a seed of its own, and its part of the examples."""
    own = dict(options)
    if own.get("max_examples") is not None:
        own["max_examples"] = max(1, own["max_examples"] // n_shards)
    if own.get("random_state") is not None:
        own["random_state"] = int(np.random.SeedSequence([own["random_state"], number]).generate_state(1)[0])
    return own


def number_of_shards(wanted: int | None, listed: int | None) -> int:
    if wanted is not None:
        check_integer("n_shards", wanted, 1, 10_000)
    if listed is None and wanted is None:
        raise ValueError("n_shards must be given for a new classifier")
    if listed is not None and wanted not in (None, listed):
        raise ValueError(f"n_shards must be {listed}, as for the classifier in the folder, or omitted, not {wanted}")
    number = wanted if listed is None else listed
    assert number is not None
    return number


def read_list(folder: Path) -> tuple[int, bool] | None:
    """Return the number of shards in a folder and whether all have been created; None if it is empty or not there."""
    if not folder.exists() or not any(folder.iterdir()):
        return None
    try:
        found: Any = json.loads((folder / _LIST).read_text(encoding="utf-8"))
        if found["kind"] == _KIND and found["version"] == _VERSION:
            return check_integer("n_shards", found["n_shards"], 1, 10_000), bool(found["complete"])
    except FileNotFoundError:
        raise FileFormatError(folder, f"is not the folder of a sharded classifier: it has no {_LIST}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(folder / _LIST, "is damaged; restore it from a copy") from error
    raise FileFormatError(folder / _LIST, f"is not of version {_VERSION} of a sharded classifier")


def write_list(folder: Path, n_shards: int, *, complete: bool) -> None:
    """Write the list of the shards, at once or not at all. The folder is created if its parent exists."""
    folder.mkdir(mode=0o700, exist_ok=True)
    contents = {"kind": _KIND, "version": _VERSION, "complete": complete, "n_shards": n_shards}
    unfinished = folder / f".{_LIST}.part"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(contents, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(folder / _LIST)
    bring_to_disk(folder)
