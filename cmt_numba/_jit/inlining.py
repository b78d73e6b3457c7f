"""Compile kernels, and functions that only kernels call, with less work than Numba does by default.

A kernel links the unoptimised code of all that it calls and is optimised as a whole, so to optimise each function by
itself would be to do it twice, and to make machine code of it would be for nothing. Only what may rearrange sums is
optimised by itself too, so that a sum is rearranged alike in whatever kernel.

Two more things are left out of both. Passes over closures, array expressions and the like, where there are none. And
the search for what an operator does with the same types as before: Numba asks anew at every place in every function.

This takes parts of Numba that it does not document. Where they are not as they are here, functions are compiled as
Numba does by default: this takes longer and gives the same answers.
"""

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, CodeType
from typing import Any

import llvmlite.ir
from numba.core import types
from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering, NopythonTypeInference
from numba.core.untyped_passes import DeadBranchPrune

from .interpreter_lock import KernelWrapper
from .pruning import PruneKnown

_NOT_AS_EXPECTED = (ImportError, AttributeError, TypeError, KeyError, ValueError)
"""What comes of using a part of Numba that is not as it was."""

_NEEDLESS = frozenset(
    {"InlineClosureLikes", "MakeFunctionToJitFunction", "WithLifting", "LiteralUnroll", "InlineOverloads"}
)
"""Passes, by name, that change nothing in functions without functions and generators of their own."""

_ALLOCATES = "NopythonRewrites"
"""Makes loops of expressions of whole arrays, whose results would need room."""

_ONCE = "DeadBranchPrune"
"""Runs three times. Once is enough: when all is inlined, and variables are not yet divided by their assignments."""

_DIVIDES = "ReconstructSSA"
"""What divides them, after which a branch that is left out could leave an assignment of nothing behind."""


class _Resolved:
    """A typing context that remembers what operators do with which types."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.known: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call, None if there is none."""
        key = function.typing_key if isinstance(function, types.Function) else function
        if kws or not (key is bool or isinstance(key, BuiltinFunctionType)):
            return self.context.resolve_function_type(function, args, kws)
        call = (function, tuple(args))
        if call not in self.known:
            signature = self.context.resolve_function_type(function, args, kws)
            if signature is None:
                return None
            self.known[call] = signature
        return self.known[call]

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """Return the signature of ``target[index] = value``."""
        function = self.context.resolve_value_type(operator.setitem)
        return self.resolve_function_type(function, (target, index, value), {})


_resolved: dict[int, _Resolved] = {}
"""By the identity of the typing context, which lives as long."""


def _resolving(context: Any) -> _Resolved:
    return _resolved.setdefault(id(context), _Resolved(context))


@register_pass(mutates_CFG=False, analysis_only=False)
class _InferTypes(NopythonTypeInference):
    _name = "infer_types"

    def run_pass(self, state: Any) -> Any:
        context = state.typingctx
        state.typingctx = _resolving(context)
        try:
            return super().run_pass(state)
        finally:
            state.typingctx = context


class _Remembering(types.Function):
    """An operator that remembers which signature it has for which types."""

    def __init__(self, function: Any) -> None:
        super().__init__(function.templates)
        self._impl_keys = function._impl_keys
        self._signatures: dict[Any, Any] = {}

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the signature for types of arguments. Raises TypingError if there is none."""
        if kws:
            return super().get_call_type(context, args, kws)
        if args not in self._signatures:
            self._signatures[args] = super().get_call_type(context, args, kws)
        return self._signatures[args]


class _Lowering(_Resolved):
    """A typing context for lowering, which asks operators for their signatures once more."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self._operators: dict[Any, Any] = {}

    def resolve_value_type(self, value: Any) -> Any:
        """Return the type of a global."""
        resolved = self.context.resolve_value_type(value)
        if type(resolved) is not types.Function or not isinstance(value, BuiltinFunctionType):
            return resolved
        if resolved not in self._operators:
            self._operators[resolved] = _Remembering(resolved)
        return self._operators[resolved]


_lowering: dict[int, _Lowering] = {}
"""By the identity of the typing context, which lives as long."""


@contextmanager
def _operators_remembered(context: Any) -> Iterator[None]:
    """Let the target context ask operators that remember their signatures during the block."""
    before = context.typing_context
    if not isinstance(before, _Resolved):
        context.typing_context = _lowering.setdefault(id(before), _Lowering(before))
    try:
        yield
    finally:
        context.typing_context = before


class _KernelLower(Lower):
    """Lowers a kernel, with a wrapper that may keep the interpreter lock."""

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Add the wrapper to the library."""
        try:
            context, module = self.context, self.context.create_module("wrapper")
            kind = context.call_conv.get_function_type(self.fndesc.restype, self.fndesc.argtypes)
            function = llvmlite.ir.Function(module, kind, self.fndesc.llvm_func_name)
            KernelWrapper(context, module, function, self.fndesc, self.env, self.call_helper, release_gil).build()
        except _NOT_AS_EXPECTED:
            super().create_cpython_wrapper(release_gil)
        else:
            self.library.add_ir_module(module)


@register_pass(mutates_CFG=False, analysis_only=False)
class _LowerKernel(NativeLowering):
    _name = "lower_kernel"
    lowering_class = _KernelLower

    def run_pass(self, state: Any) -> Any:
        with _operators_remembered(state.targetctx):
            return super().run_pass(state)


def _pipeline(state: Any, replaced: dict[Any, Any]) -> PassManager:
    """Return Numba's passes without those that a function does not need, and with some of them replaced."""
    default = DefaultPassBuilder.define_nopython_pipeline(state)
    needless = set() if any(isinstance(it, CodeType) for it in state.func_id.func.__code__.co_consts) else _NEEDLESS
    if not state.flags.nrt:
        needless = needless | {_ALLOCATES}
    names = [getattr(part, "__name__", "") for part, _ in default.passes]
    replaced = {NopythonTypeInference: _InferTypes, DeadBranchPrune: PruneKnown, **replaced}
    end = names.index(_DIVIDES) if _DIVIDES in names else len(names)
    pipeline = PassManager(default.pipeline_name)
    for i, (part, description) in enumerate(default.passes):
        if names[i] not in needless and not (names[i] == _ONCE and (i > end or _ONCE in names[i + 1 : end])):
            pipeline.add_pass(replaced.get(part, part), description)
    pipeline.finalize()
    return pipeline


class KernelCompiler(CompilerBase):
    """Compiles what Python calls."""

    def define_pipelines(self) -> list[PassManager]:
        """Return the passes."""
        return [_pipeline(self.state, {NativeLowering: _LowerKernel})]


def _parts() -> Any:
    """Return a pipeline that makes no machine code."""
    from numba import _dynfunc  # type: ignore[attr-defined]
    from numba.core.codegen import JITCodeLibrary

    for name in ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals"):
        getattr(JITCodeLibrary, name)

    class PartLibrary(JITCodeLibrary):
        optimized = False

        def _optimize_functions(self, module):
            builder = getattr(self._codegen, "_pass_builder", None)
            if self.optimized or builder is None:
                super()._optimize_functions(module)
                return
            module.data_layout = self._codegen._data_layout
            for function in module.functions:  # enough to make the code small that kernels link
                if not function.is_declaration:
                    passes = builder(opt=1, loop_vectorize=False, slp_vectorize=False)
                    passes.getFunctionPassManager().run(function, passes)

        def _optimize_final_module(self):
            if self.optimized:
                super()._optimize_final_module()

        def _finalize_final_module(self):
            self._finalize_dynamic_globals()
            self._finalized = True

    @register_pass(mutates_CFG=False, analysis_only=False)
    class LowerPart(NativeLowering):
        _name = "lower_part"

        def run_pass(self, state):
            library = state.library
            try:
                return self._lower(state)
            except _NOT_AS_EXPECTED:
                state.library, state["cr"], state.flags.no_compile = library, None, False
                return super().run_pass(state)

        def _lower(self, state):
            state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.optimized = bool(state.flags.fastmath)
            state.flags.no_compile = True
            with _operators_remembered(state.targetctx):
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
    """Return the compiler for functions that only kernels call."""
    try:
        return make()
    except _NOT_AS_EXPECTED:
        return Compiler


PartCompiler: Any = part_compiler()
