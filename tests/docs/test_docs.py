"""The documents name every room and every public object, their links lead to files, and their code runs."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT, needs_jit
from structure import MODULES, room_of

PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
NOT_ROOMS = {"__init__", "__main__", "_version"}
WITH_CODE = [ROOT / "README.md", *PAGES]
BLOCKS = {path: re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.M | re.S) for path in WITH_CODE}


def test_every_room_is_named():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)(?:/|\.py)?`", text))
    assert {room_of(path) for path in MODULES} - NOT_ROOMS - named == set()


def test_the_table_of_facts_is_that_of_the_measurements():
    done = subprocess.run(
        [sys.executable, ROOT / "docs/_site/facts.py"], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    assert done.stdout.count("\n") > 5
    assert done.stdout in (ROOT / "README.md").read_text(encoding="utf-8")


def test_dir_lists_what_is_public():
    package = import_module("cmt_numba")
    assert {"CMTClassifier", "MemoryStore", "text", "bandits"} <= set(dir(package))
    assert all(hasattr(package, name) for name in dir(package))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path: Path):
    prose = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_scripts_and_modules_exist(path: Path):
    """Paths in code spans that begin with a folder of the project name something that is there."""
    text = path.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:tests|asv_benchmarks|examples|docs)/[\w./]+)`", text)
    assert [name for name in paths if not (ROOT / name).exists()] == []
    modules = re.findall(r"`((?:\w+/)+\w+\.py)`", text)
    assert [
        name for name in modules if not any((ROOT / top / name).exists() for top in ("", "cmt_numba", "asv_benchmarks"))
    ] == []


BANNED = (
    *("inference weights", "list of the index", "exploration record", "takes as long as", "for as long as"),
    *("as many again", "half as much again", "is told", "are told", "what goes", "what comes", "beside", "errs in"),
    *("errs on", "not used again", "some thousand", "some hundred", "gone through", "looked at"),
)


def test_banned_words_are_those_of_the_glossary():
    table = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").partition("## Words we do not use")[2]
    assert [word for word in BANNED if word not in table] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_pages_use_the_words_of_the_glossary(path: Path):
    text = " ".join(path.read_text(encoding="utf-8").partition("## Words we do not use")[0].lower().split())
    assert [word for word in BANNED if re.search(rf"\b{word}\b", text)] == []


def _quoted_tables(path: Path) -> list[tuple[str, list[list[str]]]]:
    """Return the tables of a page that quote figures: name, and rows of cells, of which the first is the header."""
    found = re.findall(r"^<!-- figures: (\w+) -->\n((?:\|.*\n)+)", path.read_text(encoding="utf-8"), re.M)
    return [
        (name, [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()])
        for name, table in found
    ]


def test_quoted_figures_are_those_of_the_measurements():
    figures: dict[str, list[set[tuple[str, str, str]]]] = {}
    for path in sorted(DOCUMENTS, key=lambda path: path.parent.name != "measurements"):
        for name, (header, _, *rows) in _quoted_tables(path):
            pairs = [
                (first, column, cell) for first, *cells in rows for column, cell in zip(header[1:], cells, strict=True)
            ]
            figures.setdefault(name, []).append(set(pairs))
    for measured, *copies in figures.values():
        assert copies, "mark only tables that another page quotes"
        assert [sorted(copy - measured) for copy in copies] == [[]] * len(copies)


def _named(path: str) -> Any:
    """Return the object that the path of an import names."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name, None) or import_module(path)


def test_public_objects_are_in_the_reference():
    described = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/api").glob("*.md"))
    objects = [_named(path) for path in re.findall(r"^::: (\S+)$", described, re.M)]
    packages = [path.parent.relative_to(ROOT).parts for path in (ROOT / "cmt_numba").rglob("__init__.py")]
    public = [".".join(parts) for parts in packages if not any(part.startswith("_") for part in parts)]
    exported = [f"{package}.{name}" for package in public for name in getattr(import_module(package), "__all__", [])]
    missing = [path for path in exported if not any(_named(path) is known for known in objects)]
    assert [path for path in missing if not isinstance(_named(path), ModuleType)] == ["cmt_numba.__version__"]
    table = (ROOT / "docs/api/index.md").read_text(encoding="utf-8").partition("| name | purpose |")[2]
    listed = [_named(f"cmt_numba.{name}") for name in re.findall(r"^\| \[`([\w.]+)`\]", table, re.M)]
    assert [path for path in exported if path not in missing and not any(_named(path) is it for it in listed)] == []
    assert len(listed) <= 75


@needs_jit
@pytest.mark.parametrize("path", [path for path in WITH_CODE if BLOCKS[path]], ids=lambda path: path.stem)
def test_code_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The blocks of a page, in order; what one defines the next ones can use."""
    monkeypatch.chdir(tmp_path)  # they write files
    names: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS[path]):
        exec(compile(_with_checks(block), f"{path.name}, block {number}", "exec"), names)


def _with_checks(block: str) -> str:
    """Return code that also compares each expression with the literal in the comment after it, if there is one."""
    lines = block.splitlines()
    for node in ast.parse(block).body:
        code, _, comment = lines[node.end_lineno - 1].partition("  # ")
        if isinstance(node, ast.Expr) and node.lineno == node.end_lineno and _is_literal(comment):
            lines[node.lineno - 1] = f"got = {code}; assert getattr(got, 'tolist', lambda: got)() == {comment}, got"
    return "\n".join(lines)


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True
