"""The former name of a part of ``_change``."""

from .._change import Lockable as Lockable
from .._change import ReadWriteLock as ReadWriteLock
from .._change import changes as changes
