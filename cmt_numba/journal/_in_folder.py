"""``InFolder``, the public methods that all objects in folders share, and ``ObjectForm``, which a class adapts."""

import inspect
import os
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any, ClassVar, Self, TypeVar, cast

from .._change import Closeable, changes
from ..persistence import Contents
from ._entries import Arguments
from ._journal import Durability, DurableForm, Journal

Method = TypeVar("Method", bound=Callable[..., Any])

_signature = cache(inspect.signature)


def journaled(method: Method, in_memory: Callable[[Method], Method] = changes) -> Method:
    """Decorate a method of an object to run as a change, which is journaled if the object is in a folder.

    ``in_memory`` decorates the method of an object in memory.
    """
    change = in_memory(method)

    @wraps(method)
    def changing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._folder is None:
            return change(self, *args, **kwargs)
        return self._folder.call(method, args, kwargs)

    return cast(Method, changing)


def check_same_option(name: str, given: Any, kept: Any, what: str) -> None:
    """Raise ValueError if an option was given that differs from that of the object in the folder."""
    if given != kept:
        raise ValueError(f"{name} must be {kept!r}, as for the {what} in the folder, or omitted, got {given!r}")


class ObjectForm(DurableForm):
    """The form of an object whose class inherits :class:`InFolder` and has ``_contents``, ``_made_of`` and ``_lock``.

    - ``kind``: the class.
    - ``options``: the options passed to ``open``.
    - ``owner``: the object in the folder.
    - ``journal``: the journal, once the folder is open.
    """

    journal: Journal

    def __init__(self, kind: type, options: dict[str, Any]) -> None:
        self.options, self.kind = options, kind.__name__
        self.put(kind(**options))

    def put(self, owner: Any) -> None:
        """Use another object."""
        self.owner, self.lock = owner, owner._lock

    @property
    def is_open(self) -> bool:
        """Whether the folder is open, so that users may have the object."""
        return self.owner._folder is self

    def call(self, method: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a method of the object as a journaled change."""
        bound = _signature(method).bind(self.owner, *args, **kwargs)
        bound.apply_defaults()  # journal the defaults too, because later versions may change them
        return self.journal.change(partial(self.make, method, bound.arguments))

    def make(self, method: Callable[..., Any], given: Arguments) -> Any:
        """Call a method with the arguments ``given``, which include the object, and append the entry of the change."""

    def contents(self) -> Contents:
        return self.owner._contents()

    def made_of(self, contents: Contents, *, values: bool) -> Any:
        return type(self.owner)._made_of(contents)

    def twin(self) -> Any:
        """Return an object in memory that shares the state and the lock of the current one."""
        twin = object.__new__(type(self.owner))
        vars(twin).update(vars(self.owner) | {"_folder": None, "_own_lock": self.lock})
        return twin


class InFolder(Closeable):
    """A mixin for objects that :meth:`open` puts in a folder.

    Attributes
    ----------
    _form : type
        The :class:`ObjectForm` of the class.
    _folder : ObjectForm or None
        The form of the object; None for an object in memory.
    """

    _form: ClassVar[type[ObjectForm]]
    _folder: Any = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """Open an object in a folder, where its changes survive a crash.

        Every change is on disk before its method returns. A change that fails or is interrupted has no effect: if
        necessary, the object is read again from the folder, which takes about as long as opening it. The object is a
        context manager. Copies of it live in memory only.

        Parameters
        ----------
        path : path-like
            The folder of an object of this class, or an empty folder. A missing folder is created with access for its
            owner only; its parent must exist.
        sync_every : int, default 1
            Number of changes between syncs to disk. With a value above 1, a machine crash may lose the last
            ``sync_every - 1`` changes; a process crash loses none.
        snapshot_bytes : int, default 2**26
            Journal size in bytes above which a snapshot replaces the journal; at least the size of the last snapshot.
        snapshot_seconds : float, default 10.0
            Total time of the journaled changes, in seconds, above which a snapshot replaces the journal; at least 4
            times the time of the last snapshot. Opening the folder takes about this long.
        read_only : bool, default False
            Whether to open an existing object for queries only and write nothing, for example on a full or read-only
            disk. This or another process may change it meanwhile; :meth:`refresh` makes the changes visible.
            Parameters that the writer of an estimator has changed apply with its next change, except those that are
            passed here.
        refresh_every : float, optional
            With ``read_only``, the maximum age in seconds: a query refreshes an older object first. By default, only
            :meth:`refresh` does.
        timeout : float, default 0.0
            Time to wait for another process that has the folder open for changes, in seconds.
        **options
            Parameters of the class, for a new object. Omit them for an existing one, or pass the same values, with
            these exceptions. ``random_state`` of estimators must be an int or None. Parameters of estimators that have
            an effect after the first fit replace the stored ones, as ``set_params`` does. An ``encoder`` of texts other
            than "use" must always be passed. ``random_state`` and ``action_features`` of an existing policy are
            ignored.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from cmt_numba import CMTClassifier
        >>> folder = tempfile.TemporaryDirectory()
        >>> with CMTClassifier.open(folder.name, random_state=0) as classifier:
        ...     _ = classifier.partial_fit(np.eye(3), ["a", "b", "c"]).remove_classes(["c"])
        >>> with CMTClassifier.open(folder.name) as classifier:
        ...     classifier.predict(np.eye(3)[:2]).tolist()
        ['a', 'b']
        >>> folder.cleanup()
        """
        durability = Durability.taken_from(options)
        form = cls._form(cls, options)
        form.journal = Journal(path, form, durability)
        opened: Self = form.owner
        opened._folder = form
        return opened

    def refresh(self) -> bool:
        """Bring a read-only object to the last change of its writer. Return whether it has changed."""
        return self._folder is not None and bool(self._folder.journal.refresh())

    def checkpoint(self) -> None:
        """Replace the journal with a snapshot, so that the folder opens faster.

        A long journal is replaced automatically. Call this method before the folder is opened with another library
        version or on another type of processor.
        """
        if self._folder is None:
            raise ValueError(f"the object is not in a folder: create it with {type(self).__name__}.open, or call save")
        self._folder.journal.snapshot()

    def sync(self) -> None:
        """Write all changes to disk and wait until they are stored. Needed only with ``sync_every`` above 1."""
        if self._folder is not None:
            self._folder.journal.sync()

    def close(self) -> None:
        """Write all changes to disk, and close the folder if there is one.

        A closed object still answers queries but rejects changes.
        """
        if self._folder is not None:
            self._folder.journal.close()
