"""The version, on its own so that building the package need not import it."""

__version__ = "0.2.0"
