"""Kernels take few parameters, have docstrings, and release what they allocate."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structure import MODULES, parsed

MOST_PARAMETERS = 8


def functions(kind: str) -> Iterator[tuple[Path, Any]]:
    """Yield the functions that a decorator has marked, each with its module."""
    for path in MODULES:
        if f"@{kind}\n" not in path.read_text(encoding="utf-8"):
            continue  # parsing all modules would take seconds
        for node in parsed(path).body:
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


ALLOCATING = {"empty", "zeros", *(node.name for _, node in functions("inner_allocating"))}


def called_in(node: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of functions with their names. A function of the package may be called through its module."""
    for found in ast.walk(node):
        if isinstance(found, ast.Call) and isinstance(found.func, ast.Name | ast.Attribute):
            module, _, name = ast.unparse(found.func).rpartition(".")
            if module != "np":
                yield name, found


def names_allocated(kernel: ast.FunctionDef) -> set[str]:
    """Return the variables that a kernel assigns what it allocates."""
    names: set[str] = set()
    for assignment in (node for node in ast.walk(kernel) if isinstance(node, ast.Assign)):
        (target,), value = assignment.targets, assignment.value
        several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs = zip(target.elts, value.elts, strict=True) if several else [(target, value)]  # type: ignore[attr-defined]
        names |= {ast.unparse(name) for name, it in pairs if ALLOCATING & {called for called, _ in called_in(it)}}
    return names


def test_functions_that_allocate_are_found():
    assert {"new_workspace", "new_probe", "new_best"} <= ALLOCATING
    assert sum(bool(names_allocated(parameter.values[1])) for parameter in KERNELS) > 20


@pytest.mark.parametrize(("path", "kernel"), KERNELS)
def test_a_kernel_releases_what_it_allocates(path: Path, kernel: ast.FunctionDef):
    """Nothing counts references, so arrays that are not released stay for good."""
    allocated = names_allocated(kernel)
    if not allocated:
        return
    *_, before, last = kernel.body
    *others, released = [node for name, node in called_in(kernel) if name == "release"] or [None]
    assert released is not None, f"{path}: {kernel.name} releases nothing"
    assert not others, f"{path}: {kernel.name} releases in several places"
    is_last = [node for node in (before, last) if isinstance(node, ast.Expr) and node.value is released]
    assert is_last, f"{path}: {kernel.name} must release at its end"
    assert {ast.unparse(name) for name in ast.walk(released.args[0]) if isinstance(name, ast.Name)} == allocated
    returns = [node for node in ast.walk(kernel) if isinstance(node, ast.Return)]
    assert returns in ([], [last]), f"{path}: {kernel.name} must return once, after it has released"
