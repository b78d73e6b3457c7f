"""The folders of the package show its architecture: imports point one way, from what is said here to what is below."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "cmt_numba"

FLOORS = (
    ("_version", "_jit", "_concurrency"),
    ("_forest",),
    ("_heads",),
    ("_validation",),
    ("metrics", "rewards", "persistence"),
    ("_engine",),
    ("tree",),
    ("journal",),
    ("estimators", "sizing"),
    ("formats", "bandits", "neighbors", "sequences", "store", "text"),
    ("reranking", "evaluation"),
    ("distributed",),
    ("report", "_warmup"),
    ("cli",),
    ("__init__", "__main__"),
)
"""From the bottom up. A module imports from its own room and from floors below it."""

FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line of each import from the package, and the room that it is from, but for those of type checkers."""
    here = ("cmt_numba", *path.relative_to(PACKAGE).with_suffix("").parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    skipped = {id(node) for block in for_types for node in ast.walk(block)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in skipped:
            continue
        base = here[: len(here) - node.level] if node.level else ()
        target = (*base, *(node.module or "").split(".")) if node.module else base
        if target[:1] == ("cmt_numba",):
            for name in [target[1]] if len(target) > 1 else [alias.name for alias in node.names]:
                yield node.lineno, name


def test_every_module_has_a_floor():
    assert {room_of(path) for path in MODULES} == set(FLOOR_OF)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path):
    room = room_of(path)
    upwards = [
        f"line {line}: {other}"
        for line, other in imported_rooms(path)
        if other != room and FLOOR_OF.get(other, -1) >= FLOOR_OF[room]
    ]
    assert not upwards, f"{path.relative_to(ROOT)} imports from its own floor or from above it"


def test_imports_are_found():
    assert {name for _, name in imported_rooms(PACKAGE / "tree.py")} > {"_engine", "_forest", "_validation"}
