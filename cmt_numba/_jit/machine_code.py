"""Caches of compiled kernels: the user's cache, and a read-only cache in a platform wheel.

A kernel's machine code depends on its own file, on the functions and constants that it uses, and on the compiler
options. The cache file of a kernel therefore contains a stamp: a hash of all files that the kernel may depend on. A
change to any of these files invalidates the cache file.

A platform wheel contains a second cache, compiled for several levels of processors. If possible, a kernel is loaded
from the user's cache, which has code for exactly this processor. Otherwise the code of the highest level that this
processor can run is loaded from the wheel. If neither cache has usable code, the kernel is compiled. Numba checks the
versions of Numba and Python. If no folder is writable, each process compiles its kernels. The environment variable
``CMT_NUMBA_SHIPPED=0`` disables the cache in the wheel, as ``cmt_numba.warmup`` does.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar

import numba
from numba import config
from numba.core.caching import FunctionCache, IndexDataCacheFile

PACKAGE = Path(__file__).parents[1]
SHIPPED = PACKAGE / "_compiled"  # folder of machine code in a platform wheel
NUMBA_VERSION = "numba_version.txt"  # file in ``SHIPPED`` with the version of Numba that compiled the machine code
_USES_SHIPPED = os.environ.get("CMT_NUMBA_SHIPPED", "1") != "0" and SHIPPED.is_dir()

logger = logging.getLogger("cmt_numba")

_FOUNDATIONS = ("_jit", "_kernels", "_linear", "_index", "_words", "_postings", "_heads", "_forest")
"""Subpackages whose functions the kernels of other modules call. Each may depend on those before it."""


@cache
def _digest(room: str) -> bytes:
    """Return a hash of all source files of a module or subpackage."""
    folder = PACKAGE / room
    paths = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(PACKAGE).as_posix().encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def stamp_of(path: str | os.PathLike[str]) -> str:
    """Return a hash of all source files that the kernels in a file may depend on."""
    file = Path(path).resolve()
    if not file.is_relative_to(PACKAGE.resolve()):  # a kernel outside the package
        return hashlib.sha256(b"".join([*map(_digest, _FOUNDATIONS), file.read_bytes()])).hexdigest()
    room = file.relative_to(PACKAGE.resolve()).parts[0].removesuffix(".py")
    n_below = _FOUNDATIONS.index(room) if room in _FOUNDATIONS else len(_FOUNDATIONS)
    return hashlib.sha256(b"".join(map(_digest, (*_FOUNDATIONS[:n_below], room)))).hexdigest()


@cache
def _is_for_this_numba() -> bool:
    """Return whether this version of Numba can load the wheel's machine code; the first call logs why it cannot."""
    compiled_by = (SHIPPED / NUMBA_VERSION).read_text(encoding="utf-8")
    if compiled_by == numba.__version__:
        return True
    logger.warning(
        "the compiled kernels of this wheel need Numba %s, found %s, so kernels are compiled at first use; install "
        "cmt-numba[compiled], or run cmt_numba.warmup() once",
        compiled_by,
        numba.__version__,
    )
    return False


class _NoFolder:
    """Disables the cache of a kernel if no folder is writable."""

    def __init__(self, function: Any) -> None:
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Any, _path: str) -> _NoFolder:
        return cls(function)

    def get_disambiguator(self) -> str:
        return str(self._line)

    def get_cache_path(self) -> str:
        return os.devnull


class _CacheEntries(FunctionCache._impl_class):  # type: ignore[misc, valid-type]
    _locator_classes: ClassVar[list[Any]] = [*FunctionCache._impl_class._locator_classes, _NoFolder]


class KernelFiles(IndexDataCacheFile):  # type: ignore[misc]
    """The index and the data files of one kernel, each named by a hash of its key, so that processes may save at once.

    Numba numbers the data files. Two processes that save different signatures may then choose the same number, and the
    index names the machine code of another signature.
    """

    def load(self, key: Any) -> Any:
        """Return the machine code of a key, or None. The index is not read: its types may need slow imports."""
        try:
            return self._load_data(self._name_of(key))
        except OSError:
            return None

    def save(self, key: Any, data: Any) -> None:
        """Save the machine code, and add it to the index. A concurrent save may drop the entry, but not change it."""
        name = self._name_of(key)
        self._save_data(name, data)
        entries = self._load_index()
        if not entries:
            self._remove_stale(name)
        self._save_index({**entries, key: name})

    def _name_of(self, key: Any) -> str:
        described = repr((self._version, self._source_stamp, key))
        return f"{self._base}.{hashlib.sha256(described.encode()).hexdigest()[:32]}.nbc"

    def _remove_stale(self, name: str) -> None:
        """Remove the other data files, which belong to earlier sources or will be compiled again."""
        for path in Path(self._cache_path).glob(f"{glob.escape(self._base)}.*.nbc"):
            if path.name != name:
                path.unlink(missing_ok=True)

    @property
    def _base(self) -> str:
        return self._index_name.removesuffix(".nbi")


class KernelCache(FunctionCache):  # type: ignore[misc]
    """The machine code of one kernel on disk, which is not accessed before the kernel's first call."""

    _impl_class = _CacheEntries
    _cache_path = property(lambda self: self._impl.locator.get_cache_path())

    def __init__(self, function: Any) -> None:
        self._py_func, self._name = function, repr(function)
        self.enable()

    @cached_property
    def _impl(self) -> Any:
        return self._impl_class(self._py_func)

    @cached_property
    def _cache_file(self) -> KernelFiles:  # type: ignore[override]
        return self._entries_in(self._cache_path)

    @cached_property
    def _shipped_file(self) -> KernelFiles:
        folder = Path(self._py_func.__code__.co_filename).parent
        return self._entries_in(str(SHIPPED / folder.relative_to(PACKAGE)))

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        signature, target, code = super()._index_key(sig, codegen)
        return signature, target, (*code, config.BOUNDSCHECK)  # type: ignore[attr-defined]

    def _entries_in(self, folder: str) -> KernelFiles:
        stamp = stamp_of(self._py_func.__code__.co_filename)
        return KernelFiles(folder, self._impl.filename_base, stamp)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        if not self._enabled:
            return None
        found = None
        with suppress(Exception):  # a damaged pickle may raise any exception
            found = super()._load_overload(sig, target_context)
        if found is None and _USES_SHIPPED and _is_for_this_numba():
            with suppress(Exception):
                found = self._load_shipped(sig, target_context)
        return found

    def _load_shipped(self, sig: Any, target_context: Any) -> Any:
        """Return the wheel's machine code for the most features that this processor has, or None if it has none."""
        wanted, target, code = self._index_key(sig, target_context.codegen())
        levels = {key[1]: key for key in self._shipped_file._load_index() if key[0] == wanted and key[2] == code}
        best = _best_level(target, list(levels))
        found = None if best is None else self._shipped_file.load(levels[best])
        return None if found is None else self._impl.rebuild(target_context, found)

    def _save_overload(self, sig: Any, data: Any) -> None:
        if isinstance(self._impl.locator, _NoFolder):
            return
        try:
            super()._save_overload(sig, data)
        except Exception:  # the index is damaged: write a new one
            with suppress(OSError):  # for example a full disk: the next process compiles again
                self.flush()
                super()._save_overload(sig, data)


Processor = tuple[str, str, str]
"""Architecture, name and features of a processor, as in the index of Numba's cache."""


def _best_level(target: Processor, levels: list[Processor]) -> Processor | None:
    """Return the level with the most features whose code ``target`` can run, or None."""
    usable = [level for level in levels if level[0] == target[0] and _features(level[2]) <= _features(target[2])]
    return max(usable, key=lambda level: len(_features(level[2])), default=None)


def _features(described: str) -> set[str]:
    """Return the enabled features in a string such as "+avx2,-avx512f"."""
    return {feature[1:] for feature in described.split(",") if feature.startswith("+")}
