"""What can go wrong with a tree that lives in a folder, besides what is wrong with the folder's files."""


class JournalError(RuntimeError):
    """A durable tree cannot be changed: it is closed, or something could not be written."""


class AlreadyOpenError(JournalError):
    """The folder of a durable tree is open already, in this process or another."""
