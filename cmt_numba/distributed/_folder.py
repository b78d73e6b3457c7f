"""The folder of a sharded store: a list of its shards, and a folder or a file for each."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..persistence import FileFormatError
from ..persistence._container import bring_to_disk
from ._topology import Topology

_LIST = "shards.json"
_NAME = re.compile(r"shard-\d{3,9}")
_KIND, _VERSION = "ShardedStore", 3


class Listed(NamedTuple):
    """What the list in a folder says. The shards may know a later topology: theirs counts.

    Attributes
    ----------
    topology : Topology
        The shards.
    n_parts : int
        The number of shards when the folder was created, among which ``max_items`` was divided.
    n_made : int
        The number of shards that were ever made. Names are not used again: clients may know the actors of old ones.
    complete : bool
        Whether all of them have been opened.
    spare : tuple of str
        Shards that may have a folder, but no memories unless the shards know a later topology to which they belong.
    """

    topology: Topology
    n_parts: int
    n_made: int
    complete: bool = True
    spare: tuple[str, ...] = ()


def shard_names(n: int, first: int = 0) -> tuple[str, ...]:
    """Return the names of new shards."""
    return tuple(f"shard-{number:03d}" for number in range(first, first + n))


def read_list(path: Path) -> Listed | None:
    """Return what the list in a folder says; None if the folder is empty or not there.

    Raises
    ------
    FileFormatError
        If it is not the folder of a sharded store.
    OSError
        If it cannot be read.
    """
    try:
        text = (path / _LIST).read_text(encoding="utf-8")
    except FileNotFoundError:
        if path.exists() and any(path.iterdir()):
            raise FileFormatError(path, f"is not the folder of a sharded store: it has no {_LIST}") from None
        return None
    except UnicodeDecodeError as error:
        raise FileFormatError(path / _LIST, "is damaged") from error
    try:
        found: Any = json.loads(text)
        if found["kind"] != _KIND or found["version"] not in range(1, _VERSION + 1):
            raise FileFormatError(path / _LIST, f"is not of version {_VERSION} of a sharded store")
        after, is_complete = _checked(found["shards"]), bool(found["complete"])
        if found["version"] == 1:  # shards could not be added
            return Listed(Topology(1, after, after, move=1), len(after), len(after), is_complete)
        topology = Topology.from_json(json.dumps(found | {"version": found["topology"], "after": after}))
        _checked(topology.before)
        spare = tuple(found["left"]) and _checked(found["left"])
        if found["version"] == 2:  # new shards were listed before they had folders
            spare += tuple(name for name in after if name not in topology.before)
        return Listed(topology, int(found["parts"]), int(found["made"]), is_complete, spare)
    except FileFormatError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(path / _LIST, "is damaged; restore it from a copy") from error


def _checked(names: Sequence[str]) -> tuple[str, ...]:
    if not names or not all(_NAME.fullmatch(name) for name in names) or len(set(names)) < len(names):
        raise ValueError("no names")
    return tuple(names)


def write_list(path: Path, listed: Listed) -> None:
    """Write the list of the shards, at once or not at all. The folder is created if its parent exists."""
    path.mkdir(mode=0o700, exist_ok=True)
    topology = listed.topology
    contents = {"kind": _KIND, "version": _VERSION, "complete": listed.complete, "topology": topology.version}
    contents |= {"shards": topology.after, "before": topology.before, "schema": topology.schema, "move": topology.move}
    contents |= {"left": listed.spare, "parts": listed.n_parts, "made": listed.n_made}
    unfinished = path / f".{_LIST}.part"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(contents, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path / _LIST)
    bring_to_disk(path)
