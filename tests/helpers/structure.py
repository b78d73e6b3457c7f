"""Checks of the package's structure, read from its sources: imports, classes, lengths of modules.

`known_structure.txt` lists the current violations of the rules, by room. A room is a top-level module or subpackage of
the package. The list may only become shorter. After a change that fixes something, remove the lines that no longer
hold. The same command resolves conflicts in the list:

    python tests/helpers/structure.py
"""

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "cmt_numba"
TESTS = Path(__file__).parents[1]
KNOWN = TESTS / "known_structure.txt"
MODULES = sorted(PACKAGE.rglob("*.py"))

MAX_LINES = 800
MAX_PRIVATE_NAMES = 150
"""Uses of private names in tests. Lower it when there are fewer."""
OTHERS = {"_replace", "_fields", "_exit", "_getframe", "_tm_features", "_finalize_dynamic_globals"}
"""Names with an underscore that are not of the package."""
PUBLIC_BASES = {"Hits", "Results"}
"""Public types that may have one subclass: results with more fields."""


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module's syntax tree."""
    return tuple(ast.walk(parsed(path)))


def name_of(path: Path) -> str:
    """Return a module's path within the package."""
    return path.relative_to(PACKAGE).as_posix()


def room_of(path: Path) -> str:
    """Return the room that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line and the dotted target of each import from the package, one for each imported name."""
    package = ("cmt_numba", *path.relative_to(PACKAGE).parent.parts)
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            targets = [(*module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        yield from ((node.lineno, target[1:]) for target in targets if target[0] == "cmt_numba")


def without_types(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes, except those that only type checkers run."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from without_types(child)


def names_from_rooms(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield what a module imports from the package, and the attributes that it uses of rooms imported as a whole."""
    rooms = {}
    for node in nodes_of(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            targets = [target for _, target in imports_of(path, [node])]
            yield from targets
        if isinstance(node, ast.ImportFrom):
            for alias, target in zip(node.names, targets, strict=False):
                if len(target) == 1 and (PACKAGE / target[0]).is_dir():
                    rooms[alias.asname or alias.name] = target[0]
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in rooms:
            room = rooms[node.value.id]
            door = PACKAGE / room / "__init__.py"
            offered = {target[-1] for _, target in imports_of(door, parsed(door).body)}
            is_hidden = (PACKAGE / room / f"{node.attr}.py").exists() and node.attr not in offered
            yield (room, node.attr, "") if is_hidden else (room, node.attr)


def imports_past_doors() -> Iterator[tuple[str, str]]:
    """Yield imports of another room's modules and private names. Only packages without underscores are public."""
    for path in MODULES:
        for room, *inner in names_from_rooms(path):
            *modules, name = inner or [""]
            hidden = modules and (room.startswith("_") or any(module.startswith("_") for module in modules))
            if room != room_of(path) and (hidden or (name.startswith("_") and not name.endswith("__"))):
                yield room_of(path), f"{name_of(path)} imports {'.'.join([room, *(modules or [name])])}"


@cache
def classes() -> dict[str, list[tuple[Path, ast.ClassDef]]]:
    """Return the places where each class name is defined."""
    found = defaultdict(list)
    for path in MODULES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                found[node.name].append((path, node))
    return found


def class_names_in_use_twice() -> Iterator[tuple[str, str]]:
    """Yield each definition of a class name that is defined more than once."""
    for name, places in classes().items():
        if len(places) > 1:
            yield from ((room_of(path), f"{name_of(path)} defines a further {name}") for path, _ in places)


def bases_of(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of a class's bases."""
    for base in node.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        yield base.id if isinstance(base, ast.Name) else getattr(base, "attr", "?")


def bases_with_one_subclass() -> Iterator[tuple[str, str]]:
    """Yield classes that exactly one class of the package inherits from. Exceptions are allowed."""
    found = classes()
    subclasses = defaultdict(set)
    for name, places in found.items():
        for _, node in places:
            for base in bases_of(node):
                subclasses[base].add(name)

    def is_exception(name: str) -> bool:
        builtin = getattr(builtins, name, None)
        if name not in found:
            return isinstance(builtin, type) and issubclass(builtin, BaseException)
        return any(is_exception(base) for _, node in found[name] for base in bases_of(node))

    for base, names in subclasses.items():
        if len(names) == 1 and base in found and base not in PUBLIC_BASES and not is_exception(base):
            for path, _ in found[base]:
                yield room_of(path), f"{name_of(path)} defines {base} for {min(names)} alone"


def hidden_state() -> Iterator[tuple[str, str]]:
    """Yield weak dictionaries at module level: state of an object belongs in the object."""
    for path in MODULES:
        for node in parsed(path).body:
            if (
                isinstance(node, ast.Assign | ast.AnnAssign)
                and node.value
                and "WeakKeyDictionary" in ast.dump(node.value)
            ):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                yield room_of(path), f"{name_of(path)} keeps {ast.unparse(target)} in a weak dictionary"


def methods_for_subclasses() -> Iterator[tuple[str, str]]:
    """Yield functions that only raise NotImplementedError."""
    for path in MODULES:
        for node in nodes_of(path):
            raised = ast.dump(node) if isinstance(node, ast.Raise) else ""
            if "NotImplementedError" in raised:
                function = max(
                    (f for f in nodes_of(path) if isinstance(f, ast.FunctionDef) and f.lineno <= node.lineno),
                    key=lambda f: f.lineno,
                )
                yield room_of(path), f"{name_of(path)} raises NotImplementedError in {function.name}"


def circles_of_imports() -> Iterator[tuple[str, str]]:
    """Yield modules of one room that import each other, directly or not, also in functions or for types."""
    module_of = {
        name_of(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__"): path for path in MODULES
    }
    imported: dict[Path, set[Path]] = {}
    for path in MODULES:
        targets = {target for _, target in imports_of(path, nodes_of(path))}
        found = {module_of.get(".".join(target)) or module_of.get(".".join(target[:-1])) for target in targets}
        imported[path] = {other for other in found if other and room_of(other) == room_of(path)}

    def reached(path: Path) -> set[Path]:
        seen: set[Path] = set()
        waiting = [path]
        while waiting:
            fresh = imported[waiting.pop()] - seen
            seen |= fresh
            waiting.extend(fresh)
        return seen

    reach = {path: reached(path) for path in MODULES}
    for path in MODULES:
        circle = sorted(name_of(other) for other in reach[path] if path in reach[other])
        if circle and circle[0] == name_of(path):
            yield room_of(path), f"{', '.join(circle)} import each other"


def long_modules() -> Iterator[tuple[str, str]]:
    """Yield modules that are too long."""
    for path in MODULES:
        if path.read_text(encoding="utf-8").count("\n") > MAX_LINES:
            yield room_of(path), f"{name_of(path)} has more than {MAX_LINES} lines"


def functions_without_types() -> Iterator[tuple[str, str]]:
    """Yield functions without annotations that Numba does not compile, except in modules that extend Numba."""

    def without(node: ast.AST) -> Iterator[ast.FunctionDef]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                arguments = [*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs]
                typed = [argument for argument in arguments if argument.annotation or argument.arg in ("self", "cls")]
                if child.decorator_list and not typed and child.returns is None:
                    continue  # compiled, and so are the functions within
                if child.returns is None or len(typed) < len(arguments):
                    yield child
            yield from without(child)

    for path in MODULES:
        if not re.search(r"^from (llvmlite|numba)\b", path.read_text(encoding="utf-8"), re.M):
            for node in without(parsed(path)):
                yield room_of(path), f"{name_of(path)} has no types for {node.name}"


def private_names_in_tests() -> Iterator[str]:
    """Yield each use of a private module, name or attribute of the package in tests, apart from `reference`.

    A name that is imported through the door of a room is not private. `internals.py` names attributes as strings.
    """

    def is_private(name: str) -> bool:
        return name.startswith("_") and not name.endswith("__") and name not in OTHERS

    for path in sorted(TESTS.rglob("*.py")):
        if path.parent.name == "reference":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found: list[str] = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cmt_numba"):
                is_door = (node.module or "").count(".") == 1
                found = [alias.name if is_door else f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                found = [alias.name for alias in node.names if alias.name.startswith("cmt_numba")]
            elif isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                found = [node.attr]
            elif isinstance(node, ast.Constant) and path.name == "internals.py" and str(node.value).startswith("_"):
                found = [str(node.value)]
            names = (name for name in found if any(map(is_private, name.split("."))))
            yield from (f"{path.relative_to(TESTS)}:{node.lineno} {name}" for name in names)


RULES = (
    imports_past_doors,
    class_names_in_use_twice,
    bases_with_one_subclass,
    hidden_state,
    methods_for_subclasses,
    circles_of_imports,
    long_modules,
    functions_without_types,
)


@cache
def violations() -> set[tuple[str, str]]:
    """Return the violations of the rules, each with its room."""
    return {found for rule in RULES for found in rule()}


def known() -> set[tuple[str, str]]:
    """Return the violations that `known_structure.txt` lists."""
    found, room = set(), ""
    for line in KNOWN.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            room = line.strip("[]")
        elif line and line[0] not in "#<=>":  # skip comments and Git's conflict markers
            found.add((room, line))
    return found


def write_known(listed: set[tuple[str, str]]) -> None:
    """Write `known_structure.txt`, grouped by room so that changes in different rooms do not conflict."""
    lines = [
        "# What breaks a rule of tests/test_rooms.py today. Lines are only removed: run tests/helpers/structure.py."
    ]
    for room in sorted({room for room, _ in listed}):
        lines += ["", f"[{room}]", *sorted(line for other, line in listed if other == room)]
    KNOWN.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_known(known() & violations())
