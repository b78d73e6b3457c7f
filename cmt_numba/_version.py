"""The version, on its own so that building the package need not import it, and the mark of files."""

__version__ = "0.2.0"

MAGIC = b"\x93cmt-numba\r\n\x1a\n\x00\x00"
"""First bytes of files of this library: not text, and changed by any conversion of line endings."""
