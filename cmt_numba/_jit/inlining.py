"""Compile functions that only kernels call no further than to where a kernel can take them in.

A kernel links the unoptimised code of all that it calls and is optimised as a whole, so to optimise each function by
itself would be to do it twice, and to make machine code of it would be for nothing. Only what may rearrange sums is
optimised by itself too, so that a sum is rearranged alike in whatever kernel.

This takes parts of Numba that it does not document. Where they are not as they are here, functions are compiled as
Numba does by default: this takes longer and gives the same answers.
"""

from typing import Any

from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering

_NOT_AS_EXPECTED = (ImportError, AttributeError, TypeError, KeyError, ValueError)
"""What comes of using a part of Numba that is not as it was."""


def _parts() -> Any:
    """Return a pipeline that makes no machine code."""
    from numba import _dynfunc  # type: ignore[attr-defined]
    from numba.core.codegen import JITCodeLibrary

    for name in ("_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals"):
        getattr(JITCodeLibrary, name)

    class PartLibrary(JITCodeLibrary):
        optimized = False

        def _optimize_final_module(self):
            if self.optimized:
                super()._optimize_final_module()

        def _finalize_final_module(self):
            self._finalize_dynamic_globals()
            self._finalized = True

    @register_pass(mutates_CFG=True, analysis_only=False)
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
            default = DefaultPassBuilder.define_nopython_pipeline(self.state)
            pipeline = PassManager(default.pipeline_name)
            for part, description in default.passes:
                pipeline.add_pass(LowerPart if part is NativeLowering else part, description)
            pipeline.finalize()
            return [pipeline]

    return PartCompiler


def part_compiler(make: Any = _parts) -> Any:
    """Return the compiler for functions that only kernels call."""
    try:
        return make()
    except _NOT_AS_EXPECTED:
        return Compiler


PartCompiler: Any = part_compiler()
