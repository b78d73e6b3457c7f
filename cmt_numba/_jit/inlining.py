"""Compilers for kernels and inner functions that are faster than Numba's default compiler.

A kernel links the code of all functions that it calls and is optimised as a whole. Inner functions therefore get few
optimisations and no machine code of their own. Functions that may reorder sums are an exception: they are optimised
separately, so that a sum has the same order in every kernel.

The compilers depend on undocumented parts of Numba. If these have changed, Numba's default compiler is used, which is
slower and gives the same results.

Conditions on fields of type :data:`Known` are evaluated at compile time. The same functions handle dense and sparse
keys and branch on ``keys.sparse``. This field is not a bool but a tuple that is empty for false, so its type determines
its truth value. Numba compiles a kernel separately for dense and for sparse keys, and removes the unused branches.
"""

from typing import Any

from numba.core import ir, types
from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.ir_utils import get_definition, guard
from numba.core.typed_passes import NativeLowering, NopythonTypeInference
from numba.core.untyped_passes import DeadBranchPrune

from .references import HeldType, Reference, by_reference
from .shortcuts import NOT_AS_EXPECTED, InferTypes, KernelLower

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
        if getattr(called, "value", None) is by_reference:
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


_ALLOCATES = "NopythonRewrites"  # pass that turns array expressions into loops that allocate their results

_FOR_OTHERS = {
    "WithLifting",
    "InlineClosureLikes",
    "MakeFunctionToJitFunction",
    "InlineInlinables",
    "FindLiterallyCalls",
    "LiteralUnroll",
    "LiteralPropagationSubPipelinePass",
}
"""Passes for parts of Python and Numba that kernels do not use, for example closures."""


@register_pass(mutates_CFG=False, analysis_only=False)
class _LowerKernel(NativeLowering):
    _name = "lower_kernel"
    lowering_class = KernelLower


def _pipeline(state: Any, replaced: dict[Any, Any]) -> PassManager:
    """Return Numba's compiler passes with replacements, without unused passes and the allocation of arrays."""
    default = DefaultPassBuilder.define_nopython_pipeline(state)
    replaced = {DeadBranchPrune: PruneKnown, NopythonTypeInference: InferTypes, **replaced}
    omitted = _FOR_OTHERS if state.flags.nrt else {_ALLOCATES, *_FOR_OTHERS}
    pipeline = PassManager(default.pipeline_name)
    for part, description in default.passes:
        if getattr(part, "__name__", "") not in omitted:
            pipeline.add_pass(replaced.get(part, part), description)
            omitted = omitted | ({"DeadBranchPrune"} if part is DeadBranchPrune else set())
    pipeline.finalize()
    return pipeline


class KernelCompiler(CompilerBase):
    """The compiler for functions that Python calls."""

    def define_pipelines(self) -> list[PassManager]:
        """Return the compiler passes."""
        return [_pipeline(self.state, {NativeLowering: _LowerKernel})]


def _parts() -> Any:
    """Return the compiler for inner functions, which generates no machine code."""
    from numba import _dynfunc  # type: ignore[attr-defined]
    from numba.core.codegen import JITCodeLibrary

    for name in ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals"):
        getattr(JITCodeLibrary, name)

    class PartLibrary(JITCodeLibrary):
        optimized = is_inlined = False

        def _optimize_functions(self, module):
            builder = getattr(self._codegen, "_pass_builder", None)
            if self.optimized or builder is None:
                super()._optimize_functions(module)
                return
            module.data_layout = self._codegen._data_layout
            for function in module.functions:  # simple optimisations, which shrink the code that kernels link
                if not function.is_declaration:
                    passes = builder(opt=1, loop_vectorize=False, slp_vectorize=False)
                    passes.getFunctionPassManager().run(function, passes)
                    if not self.is_inlined:
                        function.add_function_attribute("noinline")

        def _optimize_final_module(self):
            if self.optimized:
                super()._optimize_final_module()

        def _finalize_final_module(self):
            self._finalize_dynamic_globals()
            self._finalized = True

    @register_pass(mutates_CFG=False, analysis_only=False)
    class LowerPart(NativeLowering):
        _name = "lower_part"
        lowering_class = KernelLower

        def run_pass(self, state):
            library = state.library
            try:
                return self._lower(state)
            except NOT_AS_EXPECTED:
                state.library, state["cr"], state.flags.no_compile = library, None, False
                return super().run_pass(state)

        def _lower(self, state):
            state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.optimized = bool(state.flags.fastmath)
            state.library.is_inlined = bool(state.flags.forceinline)
            state.flags.no_compile = True
            super().run_pass(state)
            state.flags.no_compile = False
            state.library.finalize()
            lowered = state["cr"]
            key = _dynfunc.make_function(
                lowered.fndesc.lookup_module(), lowered.fndesc.qualname, "", 0, lowered.env, (state.library,)
            )
            state.targetctx.insert_user_function(key, lowered.fndesc, [state.library])
            state["cr"] = lowered._replace(cfunc=key)
            return True

    class PartCompiler(CompilerBase):
        def define_pipelines(self):
            return [_pipeline(self.state, {NativeLowering: LowerPart})]

    return PartCompiler


def part_compiler(make: Any = _parts) -> Any:
    """Return the compiler for inner functions, or Numba's default compiler if Numba's version is unsupported."""
    try:
        return make()
    except NOT_AS_EXPECTED:
        return Compiler


PartCompiler: Any = part_compiler()
