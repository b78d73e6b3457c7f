"""The documents name every room of the package, and their links lead to files."""

import re
from pathlib import Path

import pytest
from conftest import ROOT
from test_rooms import MODULES, room_of

DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
NOT_ROOMS = {"__init__", "__main__", "_version"}


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md"])
def test_every_room_is_named(name: str):
    named = set(re.findall(r"`(\w+)(?:/|\.py)?`", (ROOT / name).read_text(encoding="utf-8")))
    assert {room_of(path) for path in MODULES} - NOT_ROOMS - named == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path: Path):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_scripts_and_modules_exist(path: Path):
    """Paths in code spans that begin with a folder of the project name something that is there."""
    text = path.read_text(encoding="utf-8")
    paths = re.findall(r"`((?:tests|asv_benchmarks|examples|docs)/[\w./]+)`", text)
    assert [name for name in paths if not (ROOT / name).exists()] == []
