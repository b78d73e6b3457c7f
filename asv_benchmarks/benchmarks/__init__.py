"""Benchmarks for airspeed velocity: times, memory, and the quality that speed must not be bought with."""

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path


def _source_hash() -> str:
    """Return a hash of the sources of the package that is measured."""
    specification = importlib.util.find_spec("cmt_numba")
    assert specification is not None
    assert specification.submodule_search_locations is not None
    digest = hashlib.sha256()
    for path in sorted(Path(specification.submodule_search_locations[0]).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# Numba would take kernels that were compiled from another commit for its own where only a function that is compiled
# into them has changed, so every version of the sources has a cache of its own. Numba reads the variable when it is
# imported: nothing above may import it.
os.environ["NUMBA_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / f"cmt_numba-asv-{_source_hash()}")
