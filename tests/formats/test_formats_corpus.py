"""Inputs that have once broken a reader of text, and those that fuzzing starts from."""

from pathlib import Path

from conftest import CORPUS
from readers import EXAMPLES, read_text


def test_seeds_of_fuzzing_are_read(tmp_path: Path):
    assert [read_text(tmp_path / "file", example) > 0 for example in EXAMPLES] == [True] * len(EXAMPLES)


def test_files_that_once_broke_readers_are_refused(tmp_path: Path):
    for path in sorted((CORPUS / "formats").glob("*")):
        assert read_text(tmp_path / "file", path.read_bytes()) >= -1
