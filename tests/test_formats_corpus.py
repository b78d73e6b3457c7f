"""Inputs that have once broken a reader of text, and those that fuzzing starts from."""

from pathlib import Path

from readers import EXAMPLES, read_text

CORPUS = Path(__file__).parent / "corpus" / "formats"


def test_what_fuzzing_starts_from_is_read(tmp_path: Path):
    assert [read_text(tmp_path / "file", example) > 0 for example in EXAMPLES] == [True] * len(EXAMPLES)


def test_what_once_broke_readers_does_so_no_more(tmp_path: Path):
    for path in sorted(CORPUS.glob("*")):
        assert read_text(tmp_path / "file", path.read_bytes()) >= -1
