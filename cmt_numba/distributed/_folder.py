"""The folder of a sharded store: a list of its shards, and a folder or a file for each."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from ..persistence import FileFormatError
from ..persistence._container import bring_to_disk

_LIST = "shards.json"
_NAME = re.compile(r"shard-\d{3,9}")
_KIND, _VERSION = "ShardedStore", 1


def shard_names(n: int) -> list[str]:
    """Return the names of the shards of a new store."""
    return [f"shard-{number:03d}" for number in range(n)]


def read_list(path: Path) -> tuple[list[str], bool] | None:
    """Return the names of the shards in a folder and whether all are complete; None if it is empty or not there.

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
        names, version = found["shards"], found["version"]
        if found["kind"] != _KIND or version != _VERSION:
            raise FileFormatError(path / _LIST, f"is not of version {_VERSION} of a sharded store")
        if not names or not all(_NAME.fullmatch(name) for name in names) or len(set(names)) < len(names):
            raise ValueError("no names")
        return list(names), bool(found["complete"])
    except FileFormatError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(path / _LIST, "is damaged; restore it from a copy") from error


def write_list(path: Path, names: list[str], *, complete: bool) -> None:
    """Write the list of the shards, at once or not at all. The folder is created if its parent exists."""
    path.mkdir(mode=0o700, exist_ok=True)
    contents = {"kind": _KIND, "version": _VERSION, "complete": complete, "shards": names}
    unfinished = path / f".{_LIST}.part"
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(contents, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path / _LIST)
    bring_to_disk(path)
