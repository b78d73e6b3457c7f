"""Kernels on disk: nothing stale or damaged is loaded, and wheels may bring machine code."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numba
import pytest
from conftest import ROOT, needs_jit
from internals import best_level, jit_room
from structure import MODULES, parsed

from cmt_numba._jit import machine_code

PACKAGE = ROOT / "cmt_numba"
FOUNDATIONS = ("_jit", "_kernels", "_linear", "_index", "_words", "_postings", "_heads", "_forest")

DRAW = """
import json
import numpy as np
from cmt_numba._kernels.rng import draw_word
word = draw_word(np.zeros(1, np.uint64), 0)
stats = draw_word.stats
print(json.dumps({"word": int(word), "loaded": sum(stats.cache_hits.values())}), flush=True)
"""

FORKS = """
import json, os, sys
from numba.core import config

for line in sys.stdin:
    if os.fork() == 0:
        script, folder, environment = json.loads(line)
        os.environ.clear()
        os.environ.update(environment)
        config.reload_config()
        os.chdir(folder)
        sys.path.insert(0, folder)
        exec(script)
        os._exit(0)
    if os.wait()[1] != 0:
        print("null", flush=True)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder for a copy of the rooms that hold the kernels of the engine, without the rest of the package."""
    folder = tmp_path_factory.mktemp("made")
    for room in ("_change", "_jit", "_kernels"):
        shutil.copytree(PACKAGE / room, folder / "sound" / room, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "sound" / "__init__.py").touch()
    yield folder
    if forks.cache_info().currsize > 0:
        forks().communicate()
        forks.cache_clear()


@pytest.fixture
def package(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new copy of these rooms as a package, without cached kernels."""
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        monkeypatch.delenv(name, raising=False)
    shutil.rmtree(made / "now", ignore_errors=True)
    return Path(shutil.copytree(made / "sound", made / "now" / "cmt_numba"))


@pytest.fixture
def first(made: Path, package: Path) -> dict[str, int]:
    """Return what is drawn first, and fill the cache, whose files only the first test compiles."""
    if not hasattr(os, "fork"):
        pytest.skip("draws in forked processes")
    if not (made / "filled").exists():
        drawn = draw(package)
        assert drawn["loaded"] == 0
        (made / "drawn.json").write_text(json.dumps(drawn))
        shutil.copytree(made / "now" / "cache", made / "filled")
    else:
        shutil.copytree(made / "filled", made / "now" / "cache")
    answer: dict[str, int] = json.loads((made / "drawn.json").read_text())
    return answer


@cache
def forks() -> subprocess.Popen[str]:
    """Return a process that forks for each draw, after it has imported Numba, which takes longer than to draw."""
    return subprocess.Popen([sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def draw(package: Path, **environment: str) -> dict[str, int]:
    """Return what a kernel of the package draws in a new process, and whether it was loaded from a cache."""
    variables = {"NUMBA_CACHE_DIR": str(package.parent / "cache"), **environment}
    process = forks()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([DRAW, str(package.parent), {**os.environ, **variables}]) + "\n")
    process.stdin.flush()
    answer: dict[str, int] = json.loads(process.stdout.readline())
    return answer


def ship(package: Path) -> None:
    """Move the user's cache to where a wheel has its compiled kernels."""
    [files] = (package.parent / "cache").iterdir()
    shutil.copytree(files, package / "_compiled" / "_kernels")
    (package / "_compiled" / "numba_version.txt").write_text(numba.__version__)


def compiled_functions(module: ast.Module) -> list[ast.FunctionDef]:
    """Return the functions of a module that are marked for compilation."""
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    return [
        function
        for function in functions
        if any(ast.unparse(mark).startswith(("kernel", "inner")) for mark in function.decorator_list)
    ]


def test_kernels_depend_on_their_own_room_and_the_foundations():
    # The stamp of a kernel covers these files only.
    modules = {path: parsed(path) for path in MODULES}
    elsewhere = []
    n_kernels = 0
    for path, module in modules.items():
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        n_below = FOUNDATIONS.index(own) if own in FOUNDATIONS else len(FOUNDATIONS)
        allowed = {*FOUNDATIONS[:n_below], own}
        names = {}
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = path.relative_to(PACKAGE).parts[: -node.level]
                for alias in node.names:
                    names[alias.asname or alias.name] = (*folder, *(node.module or alias.name).split("."))[0]
        for function in compiled_functions(module):
            n_kernels += 1
            used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            elsewhere += [f"{path.name}: {name}" for name in used & names.keys() if names[name] not in allowed]
    assert n_kernels > 100
    assert not elsewhere


def test_a_stamp_covers_the_room_and_all_below(package: Path, monkeypatch: pytest.MonkeyPatch):
    heads = package / "_heads" / "kernels.py"
    for room in FOUNDATIONS[2:]:
        (package / room).mkdir()
        (package / room / "kernels.py").touch()
    monkeypatch.setattr(machine_code, "PACKAGE", package)

    forget = machine_code._digest.cache_clear

    def stamps() -> dict[str, str]:
        forget()
        return {room: jit_room.machine_code.stamp_of(package / room / "kernels.py") for room in FOUNDATIONS}

    try:
        before = stamps()
        heads.write_text("THRESHOLD = 2\n")
        assert {room for room, stamp in stamps().items() if stamp != before[room]} == {"_heads", "_forest"}
        (package / "_jit" / "inlining.py").write_text("")
        assert {room for room, stamp in stamps().items() if stamp != before[room]} == set(FOUNDATIONS)
    finally:
        forget()


@needs_jit
def test_a_change_of_what_a_kernel_calls_is_never_missed(package: Path, first: dict[str, int]):
    (package / "_kernels" / "gamma.py").write_text("GAMMA = 3\n")
    rng = package / "_kernels" / "rng.py"
    source, gamma = rng.read_text(), "_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)"
    assert gamma in source
    rng.write_text(source.replace(gamma, "from .gamma import GAMMA\n_GOLDEN_GAMMA = np.uint64(GAMMA)"))
    third = draw(package)
    (package / "_kernels" / "gamma.py").write_text("GAMMA = 12345\n")
    fifth = draw(package)
    assert third["loaded"] == fifth["loaded"] == 0
    assert len({first["word"], third["word"], fifth["word"]}) == 3


@needs_jit
def test_a_damaged_cache_is_replaced(package: Path, first: dict[str, int]):
    for contents in (b"", b"damaged"):
        damaged = [path for path in (package.parent / "cache").rglob("*.nb[ic]") if "draw_word" in path.name]
        assert {path.suffix for path in damaged} == {".nbi", ".nbc"}
        for path in damaged:
            path.write_bytes(contents)
        assert draw(package) == first
        assert all(path.stat().st_size > 100 for path in damaged)
    assert draw(package) == {**first, "loaded": 1}


@needs_jit
def test_the_index_is_not_read_to_load_machine_code(package: Path, first: dict[str, int]):
    """Reading it imports the modules of all types for which a kernel was compiled."""
    for path in (package.parent / "cache").rglob("*.nbi"):
        path.write_bytes(b"damaged")
    assert draw(package) == {**first, "loaded": 1}


def test_processes_that_save_at_once_do_not_mix_their_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, second = (
        jit_room.machine_code.KernelFiles(str(tmp_path), "module.kernel-1.py312", "stamp") for _ in range(2)
    )
    save, load = first._save_data, second._load_index

    def pause(name: str, data: str) -> None:
        monkeypatch.setattr(second, "_load_index", dict)  # read before the first process wrote it
        second.save("sparse", "code for sparse rows")
        monkeypatch.setattr(second, "_load_index", load)
        save(name, data)

    monkeypatch.setattr(first, "_save_data", pause)
    first.save("dense", "code for dense rows")
    for files in (first, second):
        assert [files.load(key) for key in ("dense", "sparse")] == ["code for dense rows", "code for sparse rows"]


def test_machine_code_of_earlier_sources_is_removed(tmp_path: Path):
    for stamp in ("before", "after"):
        files = jit_room.machine_code.KernelFiles(str(tmp_path), "module.kernel-1.py312", stamp)
        for key in ("dense", "sparse"):
            assert files.load(key) is None
            files.save(key, f"{key} {stamp}")
    jit_room.machine_code.KernelFiles(str(tmp_path), "module.kernel-10.py312", "before").save(
        "dense", "of another kernel"
    )
    assert [files.load(key) for key in ("dense", "sparse")] == ["dense after", "sparse after"]
    assert len(list(tmp_path.glob("*.nbc"))) == 3


@needs_jit
def test_machine_code_in_the_package_is_used(package: Path, first: dict[str, int]):
    ship(package)
    empty = str(package.parent / "empty")
    assert draw(package, NUMBA_CACHE_DIR=empty) == {**first, "loaded": 1}
    assert draw(package, NUMBA_CACHE_DIR=empty, CMT_NUMBA_SHIPPED="0") == first
    empty = str(package.parent / "empty as well")
    # Not on a processor without what it needs, and not after a change of the sources.
    assert draw(package, NUMBA_CACHE_DIR=empty, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == first
    shutil.copy(package / "_jit" / "inlining.py", package / "_jit" / "another.py")
    assert draw(package, NUMBA_CACHE_DIR=str(package.parent / "other")) == first


def test_the_richest_code_whose_features_the_processor_has_is_used():
    newest = "x86_64-linux", "znver4", "+avx,+avx2,+avx512f,+avx512vnni,-amx-tile"
    older = "x86_64-linux", "haswell", "+avx,+avx2,-avx512f"
    levels = [("x86_64-linux", "x86-64-v3", "+avx,+avx2"), ("x86_64-linux", "x86-64-v4", "+avx,+avx2,+avx512f")]
    for order in (levels, levels[::-1]):
        assert best_level(machine_code, newest, order) == levels[1]
        assert best_level(machine_code, older, order) == levels[0]
        assert best_level(machine_code, ("x86_64-linux", "nehalem", "+sse4.2"), order) is None
        assert best_level(machine_code, ("arm64-darwin", "apple-m1", "+avx,+avx2"), order) is None


@needs_jit
def test_a_wheel_for_another_numba_says_so_once(package: Path, first: dict[str, int]):
    ship(package)
    (package / "_compiled" / "numba_version.txt").write_text("0.1.0")
    script = f"{DRAW}draw_word(np.zeros(1, np.uint64), np.int32(0))"  # other types, which are compiled as well
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "NUMBA_CACHE_DIR": str(package.parent / "empty")}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=package.parent)
    assert json.loads(done.stdout) == first
    assert done.stderr.count("need Numba 0.1.0, found") == 1


def test_machine_code_of_another_numba_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def files_on_disk():
        return jit_room.machine_code.KernelFiles(str(tmp_path), "module.kernel-1.py312", "stamp")

    files = files_on_disk()
    monkeypatch.setattr("numba.__version__", "0.1.0")
    files_on_disk().save("dense", "code of another Numba")
    assert files.load("dense") is None
    assert files_on_disk().load("dense") == "code of another Numba"


@needs_jit
def test_kernels_work_where_nothing_can_be_written(package: Path, first: dict[str, int]):
    nowhere = {"NUMBA_CACHE_DIR": "", "HOME": os.devnull, "XDG_CACHE_HOME": f"{os.devnull}/cache"}
    for room in ("_change", "_jit", "_kernels"):
        (package / room / "__pycache__").touch()  # a file, so that there can be no folder of that name
    assert draw(package, **nowhere) == first
    assert draw(package, **nowhere) == first
    ship(package)
    assert draw(package, **nowhere) == {**first, "loaded": 1}
