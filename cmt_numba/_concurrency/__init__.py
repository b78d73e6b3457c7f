"""The former name of ``_change``."""
