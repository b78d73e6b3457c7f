"""A substitute for the module ``ray`` without processes: actors are plain objects, and calls run immediately.

Values that would pass between processes are pickled. Tests of dying processes need Ray itself.
"""

import pickle
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest


class RayError(Exception):
    """As in ``ray.exceptions``."""


class RayActorError(RayError):
    """As in ``ray.exceptions``."""


class RayTaskError(RayError):
    """As in ``ray.exceptions``: a call raised an error, which is the cause."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Ref:
    """A reference to the result of a call, or to an object in the object store."""

    def __init__(self, contents: bytes | None = None, error: Exception | None = None) -> None:
        self.contents, self.error = contents, error

    def value(self) -> Any:
        if self.error is not None:
            raise self.error
        assert self.contents is not None
        return pickle.loads(self.contents)


class Method(NamedTuple):
    """A method of an actor."""

    handle: "Handle"
    name: str

    def remote(self, *arguments: Any) -> Ref:
        given = [argument.value() if isinstance(argument, Ref) else argument for argument in arguments]
        actor = ACTORS.get(self.handle.name)
        if actor is None:
            return Ref(error=RayActorError(f"{self.handle.name} is dead"))
        try:
            return Ref(pickle.dumps(getattr(actor, self.name)(*pickle.loads(pickle.dumps(given)))))
        except Exception as error:
            return Ref(error=RayTaskError(error))


class Handle(NamedTuple):
    """A handle to an actor."""

    name: str

    def __getattr__(self, method: str) -> Method:
        if method.startswith("_"):
            raise AttributeError(method)
        return Method(self, method)


ACTORS: dict[str, Any] = {}


def _remote(kind: Callable[..., Any]) -> Any:
    def started(name: str, arguments: tuple[Any, ...]) -> Handle:
        ACTORS[name] = kind(*pickle.loads(pickle.dumps(arguments)))
        return Handle(name)

    def options(name: str, **_: Any) -> Any:
        return SimpleNamespace(remote=lambda *arguments: started(name, arguments))

    return SimpleNamespace(options=options)


def _get_actor(name: str, namespace: str) -> Handle:
    if name not in ACTORS:
        raise ValueError(f"there is no actor {name}")
    return Handle(name)


def _wait(refs: list[Ref], **_: Any) -> tuple[list[Ref], list[Ref]]:
    return refs, []


LOCAL_RAY: Any = SimpleNamespace(
    exceptions=SimpleNamespace(RayError=RayError, RayActorError=RayActorError, RayTaskError=RayTaskError),
    get=Ref.value,
    get_actor=_get_actor,
    get_runtime_context=lambda: SimpleNamespace(was_current_actor_reconstructed=False),
    init=lambda *_, **__: None,
    is_initialized=lambda: True,
    kill=lambda handle, no_restart: ACTORS.pop(handle.name, None),
    put=lambda value: Ref(pickle.dumps(value)),
    remote=_remote,
    util=SimpleNamespace(
        list_named_actors=lambda all_namespaces: [{"name": name, "namespace": "cmt_numba"} for name in ACTORS]
    ),
    wait=_wait,
)


def use_local_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the package use this module instead of Ray."""
    ACTORS.clear()
    monkeypatch.setitem(sys.modules, "ray", LOCAL_RAY)
