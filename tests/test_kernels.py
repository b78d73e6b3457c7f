"""What a kernel's signature says of it, and how long a module may become."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

PACKAGE = ROOT / "cmt_numba"
MODULES = sorted(PACKAGE.rglob("*.py"))

MOST_PARAMETERS = 8
MOST_LINES = 500
LONGER: set[str] = set()
"""These are to be divided."""


def functions(kind: str) -> Iterator[tuple[Path, Any]]:
    """Yield the functions that a decorator has marked, each with its module."""
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            marks = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            if any(isinstance(mark, ast.Name) and mark.id == kind for mark in marks):
                yield path, node


KERNELS = [pytest.param(path, node, id=node.name) for path, node in functions("kernel")]


def test_kernels_are_found():
    assert len(KERNELS) > 40


@pytest.mark.parametrize(("path", "kernel"), KERNELS)
def test_a_kernel_takes_few_parameters(path: Path, kernel: ast.FunctionDef):
    """A kernel is handed the parts that it touches, not the whole state."""
    names = [argument.arg for argument in kernel.args.args]
    assert len(names) <= MOST_PARAMETERS, f"{path}: group what belongs together"
    assert "state" not in names


@pytest.mark.parametrize(("path", "kernel"), KERNELS)
def test_a_kernel_says_what_it_does(path: Path, kernel: ast.FunctionDef):
    assert ast.get_docstring(kernel) or kernel.name.startswith("_"), f"{path}: say what {kernel.name} does"


def returns_a_part(function: ast.FunctionDef) -> bool:
    """Return whether a function returns a named tuple of arrays."""
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    made = [value.func.id for value in returned if isinstance(value, ast.Call) and isinstance(value.func, ast.Name)]
    return any(name[0].isupper() for name in made)


PARTS = {node.name for _, node in functions("inner") if returns_a_part(node)}


def test_functions_that_return_a_part_are_found():
    assert {"row_of", "key_of", "probe_at", "best_at", "frontier_at"} <= PARTS


@pytest.mark.parametrize(("path", "kernel"), KERNELS)
def test_a_kernel_takes_no_part_from_an_inner_function(path: Path, kernel: ast.FunctionDef):
    """Nobody has counted the arrays of such a part, and the kernel, which counts, would free them."""
    called = {
        node.func.id for node in ast.walk(kernel) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & PARTS, f"{path}: let an inner function ask for it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_are_short(path: Path):
    n_lines = path.read_text(encoding="utf-8").count("\n")
    assert n_lines <= MOST_LINES or path.relative_to(PACKAGE).as_posix() in LONGER
