"""Compile functions that only kernels call no further than to where a kernel can take them in."""

from numba import _dynfunc  # type: ignore[attr-defined]
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering


class _PartLibrary(JITCodeLibrary):
    optimized = False

    def _optimize_final_module(self):
        if self.optimized:
            super()._optimize_final_module()

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerPart(NativeLowering):
    _name = "lower_part"

    def run_pass(self, state):
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.optimized = bool(state.flags.fastmath)
        state.flags.no_compile = True
        super().run_pass(state)
        state.flags.no_compile = False
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
            pipeline.add_pass(_LowerPart if part is NativeLowering else part, description)
        pipeline.finalize()
        return [pipeline]
