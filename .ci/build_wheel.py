"""Build a wheel that contains compiled kernels: python .ci/build_wheel.py [OUT].

Run it on the operating system and Python version that the wheel is for, in an environment with the extras ``build`` and
``compiled``, which names the version of Numba. Users with this version do not wait for the compiler; for others the
wheel works like the pure-Python wheel. The kernels are compiled once for each of the ``LEVELS`` that this processor
has. On processors below the lowest level, kernels are compiled as usual.
"""

import hashlib
import io
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from elftools.elf.elffile import ELFFile
from llvmlite.binding import get_host_cpu_features

ROOT = Path(__file__).parents[1]

_V3 = (
    "+64bit,+avx,+avx2,+bmi,+bmi2,+cmov,+crc32,+cx16,+cx8,+f16c,+fma,+fxsr,+lzcnt,+mmx,+movbe,+popcnt,+sahf,"
    "+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,+xsave"
)
LEVELS = {
    "x86_64": {"x86-64-v3": _V3, "x86-64-v4": f"{_V3},+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl"},
    "arm64": {"generic": "+neon,+fp-armv8"},
}
"""For each machine, the levels of processors and their features, as LLVM spells them."""

OWN_SYMBOLS = ("NRT_", "Py", "_Py", "numba_", "cmt_numba_")
"""How the symbols of Python, Numba and this package begin."""

_MATHEMATICS = "acos asin atan atan2 cbrt ceil cos erf exp exp2 expm1 floor fma fmod hypot log log10 log1p log2 pow"
C_FUNCTIONS = {"memcpy", "memmove", "memset"} | {
    name + kind for name in f"{_MATHEMATICS} rint round sin sqrt tan tanh trunc".split() for kind in ("", "f")
}
"""Functions of the C library that kernels may call. All are older than any Linux that Numba supports."""


def run(*command: object, **environment: str) -> None:
    """Run a command, and show its output only if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=tempfile.gettempdir(),  # a folder without another copy of the package
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")


def compile_kernels(unpacked: Path, work: Path) -> None:
    """Compile all kernels of an unpacked wheel into its folder ``_compiled``, for each level."""
    cache = work / "cache"
    machine = {"aarch64": "arm64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    host = get_host_cpu_features()
    for name, features in LEVELS[machine].items():
        missing = [feature[1:] for feature in features.split(",") if not host.get(feature[1:])]
        if missing:  # compiling runs the kernels
            print(f"no kernels for {name}: this processor lacks {', '.join(missing)}")
            continue
        settings = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(cache)}
        run(sys.executable, "-c", "import cmt_numba; cmt_numba.warmup()", PYTHONPATH=str(unpacked), **settings)
    package = unpacked / "cmt_numba"
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        # numba names the folder of a cache after that of the sources and a hash of its path
        compiled = cache / f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"
        if compiled.is_dir():
            shutil.copytree(compiled, package / "_compiled" / folder.relative_to(package), dirs_exist_ok=True)
    if not any((package / "_compiled").rglob("*.nbc")):
        sys.exit("nothing was compiled")
    (package / "_compiled" / "numba_version.txt").write_text(version("numba"), encoding="utf-8")


def needed_symbols(compiled: Path) -> Iterator[str]:
    """Yield the symbols that compiled kernels need from libraries, except those of Python and Numba."""
    for path in compiled.rglob("*.nbc"):
        pickled = path.read_bytes()
        table = ELFFile(io.BytesIO(pickled[pickled.index(b"\x7fELF") :])).get_section_by_name(".symtab")
        for symbol in table.iter_symbols():
            if symbol["st_shndx"] == "SHN_UNDEF" and not symbol.name.startswith(OWN_SYMBOLS):
                yield symbol.name


def platform_tag(compiled: Path) -> str:
    """Return the wheel's platform tag. On Linux, check that any C library since 2014 has the needed functions.

    ``auditwheel`` finds no library in the wheel, because Numba's cache files contain the machine code.
    """
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not tag.startswith("linux_"):
        return tag
    if unknown := set(needed_symbols(compiled)) - C_FUNCTIONS - {""}:
        sys.exit(f"compiled kernels need functions that manylinux_2_17 may lack: {', '.join(sorted(unknown))}")
    return tag.replace("linux_", "manylinux_2_17_") + "." + tag.replace("linux_", "manylinux2014_")


def main(out: Path) -> None:
    """Write the pure wheel and the one with machine code to a folder."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [pinned] = project["optional-dependencies"]["compiled"]
    if pinned != f"numba=={version('numba')}":
        sys.exit(f"the extra 'compiled' requires {pinned}, found {version('numba')}")
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary).resolve()
        run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", out, ROOT)
        [pure] = out.glob("cmt_numba-*-py3-none-any.whl")
        run(sys.executable, "-m", "wheel", "unpack", "--dest", work, pure)
        [unpacked] = work.glob("cmt_numba-*")
        compile_kernels(unpacked, work)
        shutil.rmtree(work / "cache")
        for cached in unpacked.rglob("__pycache__"):
            shutil.rmtree(cached)
        about = next(unpacked.glob("*.dist-info")) / "WHEEL"
        about.write_text(about.read_text().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false"))
        run(sys.executable, "-m", "wheel", "pack", "--dest-dir", work, unpacked)
        [packed] = work.glob("cmt_numba-*.whl")
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        tags = ("--python-tag", python, "--platform-tag", platform_tag(unpacked / "cmt_numba" / "_compiled"))
        run(sys.executable, "-m", "wheel", "tags", "--remove", *tags, packed)
        [tagged] = work.glob("cmt_numba-*.whl")
        shutil.move(tagged, out / tagged.name)
        print(f"{out / tagged.name}: {(out / tagged.name).stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    main(folder)
