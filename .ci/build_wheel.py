"""Build a wheel that contains compiled kernels: python .ci/build_wheel.py [OUT].

Run it in an environment with the package's dependencies and ``wheel``, on the operating system and Python version that
the wheel is for. Users with the same version of Numba do not wait for the compiler; for others the wheel works like the
pure-Python wheel. The kernels are compiled for BASELINE, so the wheel also serves older processors. On processors that
lack one of its features, kernels are compiled as usual.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

BASELINE = {
    "x86_64": (
        "x86-64-v3",
        "+64bit,+avx,+avx2,+bmi,+bmi2,+cmov,+crc32,+cx16,+cx8,+f16c,+fma,+fxsr,+lzcnt,+mmx,+movbe,+popcnt,+sahf,"
        "+sse,+sse2,+sse3,+sse4.1,+sse4.2,+ssse3,+xsave",
    ),
    "arm64": ("generic", "+neon,+fp-armv8"),
}
"""The name of the processor and its features, as LLVM spells them, for each machine."""


def compiler_settings() -> dict[str, str]:
    """Return Numba's settings for the kernels of the wheel."""
    machine = {"aarch64": "arm64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    name, features = BASELINE[machine]
    return {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}


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
    """Compile all kernels of an unpacked wheel into its folder ``_compiled``."""
    cache = work / "cache"
    settings = {**compiler_settings(), "NUMBA_CACHE_DIR": str(cache)}
    run(sys.executable, "-c", "import cmt_numba; cmt_numba.warmup()", PYTHONPATH=str(unpacked), **settings)
    package = unpacked / "cmt_numba"
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        # numba names the folder of a cache after that of the sources and a hash of its path
        compiled = cache / f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"
        if compiled.is_dir():
            shutil.copytree(compiled, package / "_compiled" / folder.relative_to(package), dirs_exist_ok=True)
    if not any((package / "_compiled").rglob("*.nbc")):
        sys.exit("nothing was compiled")


def main(out: Path) -> None:
    """Write the pure wheel and the one with machine code to a folder."""
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
        tag = f"{platform.system().lower()}_{platform.machine()}"
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", python, "--platform-tag", tag, packed)
        [tagged] = work.glob("cmt_numba-*.whl")
        shutil.move(tagged, out / tagged.name)
        print(f"{out / tagged.name}: {(out / tagged.name).stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    main(folder)
