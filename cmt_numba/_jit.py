"""The only place with numba options.

``kernel`` marks what Python calls: a whole batch of work in one call, compiled once, kept in numba's cache, and run
without the global interpreter lock. The other three mark what kernels call; they are compiled into each kernel that
uses them and need no cache entry of their own:

- ``inner`` does without reference counts. Every array of the state outlives the call, yet numba would count each
  array of each tuple it takes apart, with two atomic operations that together cost several times the work itself.
  Such a function cannot allocate.
- ``inner_fastmath`` is ``inner`` for sums of products, whose additions may be rearranged into vector instructions;
  NaN and infinity keep their meaning.
- ``inner_allocating`` is for what a kernel calls once to make room to work in.

Set the environment variable ``CMT_NUMBA_CACHE=0`` to compile anew in every process.
"""

import os

from numba import njit

_CACHE = os.environ.get("CMT_NUMBA_CACHE", "1") != "0"
_FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}

kernel = njit(cache=_CACHE, nogil=True, error_model="numpy")
inner = njit(nogil=True, error_model="numpy", _nrt=False)
inner_fastmath = njit(nogil=True, error_model="numpy", fastmath=_FASTMATH, _nrt=False)
inner_allocating = njit(nogil=True, error_model="numpy")
