"""Benchmarks for airspeed velocity: time, memory and accuracy."""

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path


def _source_hash() -> str:
    """Return a hash of the sources of the measured package."""
    specification = importlib.util.find_spec("cmt_numba")
    assert specification is not None
    assert specification.submodule_search_locations is not None
    digest = hashlib.sha256()
    for path in sorted(Path(specification.submodule_search_locations[0]).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# Numba reuses a cached kernel of another commit if only a function that is compiled into it has changed. So each
# version of the sources has a cache of its own, unless the variable is set. Numba reads the variable on import: nothing
# above may import Numba.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"cmt_numba-asv-{_source_hash()}"))
