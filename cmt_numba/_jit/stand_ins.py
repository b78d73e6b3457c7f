"""Quicker stand-ins for some functions of Numba, while a kernel is compiled.

Each gives what the original does, of what kernels have in them. After every pass Numba works out which variables may
be set where each block begins, which it needs for generators only. It lists the variables of instructions, asks for
the value of every flag and for the size of types very many times.

This takes parts of Numba that it does not document. What is not there has no stand-in.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.compiler_lock import global_compiler_lock

StandIn = tuple[Any, str, Callable[..., Any]]
"""A class of Numba, the name of a method and a function to be that method for a while."""


def _of_numba() -> list[StandIn]:
    """Return the stand-ins."""
    from numba.core import ir
    from numba.core.base import BaseContext
    from numba.core.postproc import PostProcessor, VariableLifetime
    from numba.core.targetconfig import TargetConfig
    from numba.core.transforms import canonicalize_cfg

    run, size_of = PostProcessor.run, BaseContext.get_abi_sizeof
    sizes: dict[Any, int] = {}

    def run_without_entry_vars(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
        code = self.func_ir
        if emit_dels or code.is_generator:
            run(self, emit_dels, extend_lifetimes)
            return
        code.blocks = canonicalize_cfg(code.blocks)
        code.variable_lifetime = VariableLifetime(code.blocks)
        code.generator_info = None

    def append_variables(value: Any, found: list[Any]) -> None:
        kind = type(value)
        if kind is ir.Var:
            found.append(value)
        elif kind is str or kind is ir.Loc:
            pass
        elif isinstance(value, ir.Var):
            found.append(value)
        elif isinstance(value, ir.Inst):
            found.extend(value.list_vars())
        elif isinstance(value, (list, tuple)):
            for part in value:
                append_variables(part, found)
        elif isinstance(value, dict):
            for part in value.values():
                append_variables(part, found)

    def variables_of(_self: Any, value: Any) -> list[Any]:
        found: list[Any] = []
        append_variables(value, found)
        return found

    defaults: dict[Any, dict[str, Any]] = {}

    def flags_of(self: Any) -> dict[str, Any]:
        kind = type(self)
        if kind not in defaults:
            defaults[kind] = {name: option.default for name, option in self.options.items()}
        return {**defaults[kind], **self._values}

    def size_once(self: Any, kind: Any) -> int:
        key = id(self), str(kind)
        if key not in sizes:
            sizes[key] = size_of(self, kind)
        return sizes[key]

    return [
        (PostProcessor, "run", run_without_entry_vars),
        (ir.Inst, "_rec_list_vars", variables_of),
        (TargetConfig, "values", flags_of),
        (BaseContext, "get_abi_sizeof", size_once),
    ]


def stand_ins(make: Callable[[], list[StandIn]] = _of_numba) -> list[StandIn]:
    """Return the stand-ins for what Numba has; none if a part of it is not as it was."""
    try:
        found = make()
        return found if all(name in vars(owner) for owner, name, _ in found) else []
    except (ImportError, AttributeError):
        return []


_STAND_INS = stand_ins()


@contextmanager
def standing_in() -> Iterator[None]:
    """Let the stand-ins take their places during the block, in which no other thread compiles."""
    with global_compiler_lock:
        before = [(owner, name, vars(owner)[name]) for owner, name, _ in _STAND_INS]
        try:
            for owner, name, stand_in in _STAND_INS:
                setattr(owner, name, stand_in)
            yield
        finally:
            for owner, name, original in before:
                setattr(owner, name, original)
