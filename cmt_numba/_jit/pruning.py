"""Conditions that are evaluated at compile time.

The same functions handle dense and sparse keys and branch on ``keys.sparse``. This field is not a bool but a tuple that
is empty for false (:data:`Known`), so its type determines its truth value. Numba compiles a kernel separately for dense
and for sparse keys, and the unused branches are removed.
"""

from typing import Any

from numba.core import ir, types
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import get_definition, guard
from numba.core.untyped_passes import DeadBranchPrune

from .references import HeldType, Reference, by_reference, by_value

Known = tuple[()] | tuple[None]
"""The type of a boolean field whose value is part of its type."""


def known(truth: bool) -> Known:
    """Convert a bool to :data:`Known`."""
    return (None,) if truth else ()


def _field(owner: Any, name: str) -> Any:
    """Return the type of a field of a named tuple, or None if the field does not exist."""
    fields = getattr(owner, "fields", ())
    return owner[fields.index(name)] if name in fields else None


def _types_of(state: Any, value: Any, met: set[str]) -> set[Any]:
    """Return the possible types of an argument or of a field of an argument, before type inference.

    The set contains None if a type is unknown. A reference counts as its target. Variables in ``met`` are skipped.
    """
    if isinstance(value, ir.Var):
        if value.name in met:
            return set()
        met.add(value.name)
        return {found for it in state.func_ir._definitions[value.name] for found in _types_of(state, it, met)}
    if isinstance(value, ir.Arg):
        found = state.args[value.index]
        return {found.target if isinstance(found, HeldType | Reference) else found}
    if isinstance(value, ir.Expr) and value.op == "getattr":
        return {_field(owner, value.attr) for owner in _types_of(state, value.value, met)}
    if isinstance(value, ir.Expr) and value.op == "call" and value.args:
        called = guard(get_definition, state.func_ir, value.func)
        if getattr(called, "value", None) in (by_reference, by_value):
            return _types_of(state, value.args[0], met)
    return {None}


def _truth_of(state: Any, value: Any) -> Any:
    """Return the truth value of a field, or None if the type does not determine it."""
    if not isinstance(value, ir.Expr) or value.op != "getattr":
        return None
    found = _types_of(state, value, set())
    tuples = all(isinstance(it, types.BaseTuple) and not isinstance(it, types.BaseNamedTuple) for it in found)
    truths = {len(it) > 0 for it in found} if tuples else set()
    return truths.pop() if len(truths) == 1 else None


@register_pass(mutates_CFG=True, analysis_only=False)
class PruneKnown(DeadBranchPrune):
    """Numba's pass that removes dead branches, extended to fields of type :data:`Known`."""

    _name = "prune_known"

    def run_pass(self, state: Any) -> Any:
        """Replace fields by constants where possible, and remove dead branches."""
        for block in state.func_ir.blocks.values():
            for assignment in block.find_insts(ir.Assign):
                truth = _truth_of(state, assignment.value)
                if truth is not None:
                    constant = ir.Const(truth, loc=assignment.loc)
                    definitions = state.func_ir._definitions[assignment.target.name]
                    definitions[definitions.index(assignment.value)] = constant
                    assignment.value = constant
        return super().run_pass(state)
