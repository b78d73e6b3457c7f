"""The version of the package and the signature of its files. The build reads this module without importing NumPy."""

__version__ = "0.4.0"

MAGIC = b"\x93cmt-numba\r\n\x1a\n\x00\x00"
"""The first bytes of the package's files. A conversion of line endings changes them, so readers detect the damage."""
