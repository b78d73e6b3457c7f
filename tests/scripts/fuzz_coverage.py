"""Search for inputs that break readers by coverage-guided fuzzing, without a time limit (needs Atheris).

There are two targets: ``load``, the files of trees and estimators, and ``formats``, the readers of data files in text
formats. Inputs that break a target are written to ``tests/corpus/``, and the tests read them from then on. Further
arguments go to libFuzzer.

    python -m pip install '.[fuzz]'
    python tests/scripts/fuzz_coverage.py load -max_total_time=3600
    python tests/scripts/fuzz_coverage.py formats -max_total_time=3600
"""

import sys
import tempfile
from pathlib import Path

import atheris
import numpy as np

TESTS = Path(__file__).parents[1]
CORPUS = TESTS / "corpus"

sys.path.append(str(TESTS / "helpers"))

# Kernels are excluded: Numba cannot compile functions that Atheris has instrumented.
_WITH_KERNELS = ["_forest", "_heads", "_kernels", "_linear", "_jit", "rewards"]
_OTHERS = [f"cmt_numba.{room}" for room in _WITH_KERNELS]
with atheris.instrument_imports(include=["cmt_numba"], exclude=_OTHERS):
    from readers import read_text
    from saved import FileFormatError, load_any


WORDS = [b"qid:", b"#", b"|", b"'", b'"', b":", b",", b"\t", b"\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"label"]
WORDS += [b"nan", b"-inf", b"1e999", b"-1", b"1_0", b"0x1", b"+", b".", b"2147483648", b"18446744073709551616"]
WORDS += [b"\xd9\xa1"]
"""Tokens of files in text formats, and values that parsers often fail on."""


def _write_dictionary(path: Path) -> None:
    """Write the dictionary of tokens in libFuzzer's format."""
    words = ("".join(f"\\x{byte:02x}" for byte in word) for word in WORDS)
    path.write_text("".join(f'"{word}"\n' for word in words))


def _try_file(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        loaded = load_any(path)
    except FileFormatError:
        return
    if hasattr(loaded, "check_invariants"):
        loaded.check_invariants()


def _mutated(data: bytes, most: int, seed: int) -> bytes:
    """Return a file with one more error, which checksums do not detect in half of the cases."""
    from mutations import mutated

    if seed % 2 == 0:
        try:
            return mutated(np.random.default_rng(seed), [data])[:most]
        except Exception:  # the file was already too broken to be parsed
            pass
    return bytes(atheris.Mutate(data, most))


def main() -> None:
    """Run the command line."""
    target, words = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        seeds, path = Path(folder) / "seeds", Path(folder) / "input"
        seeds.mkdir()
        if target == "load":
            from fuzz_load import sound_files

            for i, file in enumerate(sound_files()):
                (seeds / str(i)).write_bytes(file)
            options = {"custom_mutator": _mutated}
        else:
            from readers import EXAMPLES

            for i, example in enumerate(EXAMPLES):
                (seeds / str(i)).write_bytes(example)
            options = {}
            _write_dictionary(Path(folder) / "words")
            # long enough from the start for several rows and for numbers that are too large
            words = [f"-dict={folder}/words", "-max_len=2000", "-len_control=0", *words]
        limits = ["-timeout=10", "-rss_limit_mb=4096", "-max_len=200000"]
        own = [str(seeds), *limits, f"-artifact_prefix={CORPUS / target}/"]
        atheris.Setup(
            [sys.argv[0], *own, *words],
            (lambda data: _try_file(path, data)) if target == "load" else (lambda data: read_text(path, data)),
            **options,
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
