"""The package shows its architecture: imports point one way and pass doors, and a class is one thing with one name."""

from structure import (
    MAX_PRIVATE_NAMES,
    MODULES,
    PACKAGE,
    imports_of,
    known,
    name_of,
    parsed,
    private_names_in_tests,
    room_of,
    violations,
    without_types,
)

FLOORS = (
    ("_arrays", "_display", "_version", "_change"),
    ("_jit",),
    ("_kernels",),
    ("_linear",),
    ("_index", "_words"),
    ("_feedback", "_postings"),
    ("_forest", "_heads"),
    ("_validation",),
    ("metrics", "rewards", "persistence", "_encoder"),
    ("_engine",),
    ("journal",),
    ("tree",),
    ("estimators",),
    ("formats", "bandits", "neighbors", "sequences", "store", "text"),
    ("reranking", "evaluation"),
    ("distributed",),
    ("report", "_warmup"),
    ("cli",),
    ("__init__", "__main__"),
)
"""From the bottom up. A module imports from its own room and from floors below it, through the doors of their rooms."""

FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def test_every_module_has_a_floor():
    assert {room_of(path) for path in MODULES} == set(FLOOR_OF)


def test_imports_point_downwards():
    upwards = [
        f"{name_of(path)}:{line} imports {target[0]}"
        for path in MODULES
        for line, target in imports_of(path, without_types(parsed(path)))
        if target[0] != room_of(path) and FLOOR_OF.get(target[0], -1) >= FLOOR_OF[room_of(path)]
    ]
    assert not upwards, "these import from their own floor or from above it"


def test_imports_are_found():
    tree = PACKAGE / "tree" / "_tree.py"
    assert {target[0] for _, target in imports_of(tree, without_types(parsed(tree)))} > {
        "_engine",
        "_forest",
        "_validation",
    }


def test_rules_of_structure_are_kept():
    further = sorted(line for _, line in violations() - known())
    assert not further, "these break a rule that `tests/helpers/structure.py` states"


def test_the_list_of_exceptions_is_up_to_date():
    gone = sorted(line for _, line in known() - violations())
    assert not gone, "these are mended: run `python tests/helpers/structure.py`, which drops them from the list"


def test_tests_use_doors():
    found = list(private_names_in_tests())
    assert len(found) <= MAX_PRIVATE_NAMES, f"use `tests/helpers/internals.py` or a door: {found}"
