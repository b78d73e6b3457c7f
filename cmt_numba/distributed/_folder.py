"""Folders of sharded stores and classifiers.

A folder contains a JSON file that lists the shards, and a folder or file for each shard.
"""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .._validation import check_integer
from ..persistence import FileFormatError, replacing
from ._topology import Topology

T = TypeVar("T")

_SHARD_NAME = re.compile(r"shard-\d{3,9}")
_DAMAGED = "is damaged; restore it from a copy"


class ListFile(NamedTuple):
    """The name, kind and version of a file that lists shards."""

    name: str
    kind: str
    version: int
    words: str

    def read(self, folder: Path, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """Return the parsed contents, or None if the folder is empty or does not exist."""
        path = folder / self.name
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if folder.exists() and any(folder.iterdir()):
                reason = f"is not a folder of a sharded {self.words}: it has no {self.name}"
                raise FileFormatError(folder, reason) from None
            return None
        except ValueError as error:
            raise FileFormatError(path, _DAMAGED) from error
        if not isinstance(found, dict) or not {"kind", "version"} <= found.keys():
            raise FileFormatError(path, _DAMAGED)
        if found["kind"] != self.kind or found["version"] != self.version:
            reason = f"must have kind {self.kind!r} and version {self.version}"
            raise FileFormatError(path, f"{reason}, got {found['kind']!r} and version {found['version']!r}")
        try:
            return parse(found)
        except (ValueError, KeyError, TypeError) as error:
            raise FileFormatError(path, _DAMAGED) from error

    def write(self, folder: Path, contents: dict[str, Any]) -> None:
        """Write the contents atomically. Create the folder if it does not exist."""
        folder.mkdir(mode=0o700, exist_ok=True)
        text = json.dumps({"kind": self.kind, "version": self.version} | contents)
        with replacing(folder / self.name) as file:
            file.write(text.encode())


_STORE_FILE = ListFile("shards.json", "ShardedStore", 5, "store")
_CLASSIFIER_FILE = ListFile("classifier.json", "ShardedClassifier", 2, "classifier")


class ShardList(NamedTuple):
    """The list of a store's shards."""

    topology: Topology  # topology when the list was written. A later topology that a shard has stored takes precedence.
    n_parts: int  # number of shards when the folder was created, by which ``max_items`` is divided
    # number of shards created so far, including removed shards. Names are never reused, because clients may still
    # refer to the actors of removed shards.
    n_made: int
    complete: bool = True  # whether all shards have been opened
    spare: tuple[str, ...] = ()  # names of shards that may have a folder, although they are not in ``topology``


def shard_name(number: int) -> str:
    """Return the name of shard ``number``."""
    return f"shard-{number:03d}"


def number_of(name: str) -> int:
    """Return the number in a shard's name."""
    return int(name.split("-")[1])


def read_list(folder: Path) -> ShardList | None:
    """Return the list of a store's shards, or None if the folder is empty or does not exist."""

    def parse(found: dict[str, Any]) -> ShardList:
        after, is_complete = _checked_names(found["shards"]), bool(found["complete"])
        topology = Topology.from_json(json.dumps(found | {"version": found["topology"], "after": after}))
        spare = _checked_names(found["left"]) if found["left"] else ()
        return ShardList(topology, int(found["parts"]), int(found["made"]), is_complete, spare)

    return _STORE_FILE.read(folder, parse)


def write_list(folder: Path, shards: ShardList) -> None:
    """Write the list of a store's shards."""
    version, before, after, schema, move = shards.topology
    contents = {"complete": shards.complete, "topology": version, "before": before, "after": after, "shards": after}
    contents |= {"schema": schema, "move": move, "left": shards.spare, "parts": shards.n_parts, "made": shards.n_made}
    _STORE_FILE.write(folder, contents)


def _checked_names(names: Sequence[str]) -> tuple[str, ...]:
    if not names or not all(_SHARD_NAME.fullmatch(name) for name in names) or len(set(names)) < len(names):
        raise ValueError(f"shard names must be distinct and have the format {shard_name(0)}, got {names!r:.100}")
    return tuple(names)


def read_classifier_list(folder: Path) -> tuple[int, bool] | None:
    """Return a classifier's number of shards, and whether all exist; None if the folder is empty or missing."""

    def parse(found: dict[str, Any]) -> tuple[int, bool]:
        return check_integer("n_shards", found["n_shards"], 1, 10_000), bool(found["complete"])

    return _CLASSIFIER_FILE.read(folder, parse)


def write_classifier_list(folder: Path, n_shards: int, *, complete: bool) -> None:
    """Write a classifier's number of shards."""
    _CLASSIFIER_FILE.write(folder, {"complete": complete, "n_shards": n_shards})
