"""Errors of durable trees, apart from those about their files."""


class JournalError(RuntimeError):
    """A durable tree cannot be changed: it is closed or read-only, or a change could not be written."""


class AlreadyOpenError(JournalError):
    """The folder of a durable tree is already open, in this or another process."""
