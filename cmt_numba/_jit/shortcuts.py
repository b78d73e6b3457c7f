"""Shortcuts through Numba's compiler for frequent operations of kernels: operators, and elements of arrays.

Numba tries about ten implementations for each operator, again for each expression. For ``array[i]`` it generates a copy
of the array's description, which LLVM removes later. The shortcuts give the same types and the same results, but an
index of an element must not be negative: code for negative indices takes as long as the rest of some loops. With bounds
checks, a negative index raises IndexError.
"""

import operator
from typing import Any, ClassVar

import llvmlite.ir
from numba.core import ir, types
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NopythonTypeInference

from .interpreter_lock import KernelWrapper

NOT_AS_EXPECTED = (ImportError, AttributeError, TypeError, KeyError, ValueError)
"""Exceptions that indicate a change in an undocumented part of Numba."""

_ItemTypes = types.Integer | types.Float | types.Boolean


class _Remembering:
    """A typing context that remembers the signatures of Numba's functions, for all kernels of the process.

    Numba would compile an implementation in Python again for each set of compiler options, of which only ``fastmath``
    matters.
    """

    _signatures: ClassVar[dict[Any, Any]] = {}

    def __init__(self, context: Any, fastmath: Any) -> None:
        self._context, self._fastmath = context, str(fastmath)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call."""
        if kws or isinstance(function, types.Dispatcher):
            return self._context.resolve_function_type(function, args, kws)
        key = function, tuple(args), self._fastmath
        if key not in self._signatures:
            found = self._context.resolve_function_type(function, args, kws)
            if found is None:
                return None
            own = function.get_impl_key(found) if isinstance(function, types.Function) else None
            self._signatures[key] = found, own
        found, own = self._signatures[key]
        if own is not None:  # a user may have compiled it with other options since
            function._impl_keys[found.args] = own
        return found

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """Return the signature of an assignment to an element."""
        return self.resolve_function_type(operator.setitem, (target, index, value), {})


@register_pass(mutates_CFG=True, analysis_only=False)
class InferTypes(NopythonTypeInference):
    """Numba's type inference, with remembered signatures."""

    _name = "infer_types"

    def run_pass(self, state: Any) -> Any:
        """Infer the types of all variables."""
        context, state.typingctx = state.typingctx, _Remembering(state.typingctx, state.flags.fastmath)
        try:
            return super().run_pass(state)
        finally:
            state.typingctx = context


class KernelLower(Lower):
    """Generates the code of functions, which reads and writes elements of contiguous arrays directly.

    Functions that Python calls get a :class:`KernelWrapper`, which can keep the interpreter lock.
    """

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Add the Python wrapper to the library."""
        try:
            context, module = self.context, self.context.create_module("wrapper")
            kind = context.call_conv.get_function_type(self.fndesc.restype, self.fndesc.argtypes)
            function = llvmlite.ir.Function(module, kind, self.fndesc.llvm_func_name)
            KernelWrapper(context, module, function, self.fndesc, self.env, self.call_helper, release_gil).build()
        except NOT_AS_EXPECTED:
            super().create_cpython_wrapper(release_gil)
        else:
            self.library.add_ir_module(module)

    def _address_of(self, array: Any, index: Any) -> Any:
        """Return the address of an element, or None if the expression is not a single element, or to check bounds."""
        kind, of = self.typeof(array.name), self.typeof(index.name)
        kinds = of.types if isinstance(of, types.BaseTuple) else (of,)  # type: ignore[attr-defined]
        if (
            type(kind) is not types.Array
            or not (kind.layout == "C" and kind.aligned and isinstance(kind.dtype, _ItemTypes))
            or not (len(kinds) == kind.ndim and all(isinstance(it, types.Integer) for it in kinds))
        ):
            return None
        builder, model, is_checked = (
            self.builder,
            self.context.data_model_manager[kind],
            self.context.enable_boundscheck,
        )
        words, at, place = self.loadvar(array.name), self.loadvar(index.name), None
        for axis, it in enumerate(kinds):
            i = self.context.cast(builder, at if of is it else builder.extract_value(at, axis), it, types.intp)
            if is_checked and it.signed:
                with builder.if_then(builder.icmp_signed("<", i, i.type(0)), likely=False):
                    self.context.call_conv.return_user_exc(builder, IndexError, (f"negative index: {self.loc}",))
            length = builder.extract_value(words, [model.get_field_position("shape"), axis])
            place = i if place is None else builder.add(builder.mul(place, length), i)
        if is_checked:
            return None
        return builder.gep(builder.extract_value(words, model.get_field_position("data")), [place])

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Generate the code of ``value[index]``."""
        address = self._address_of(value, index)
        if address is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        found = self.context.unpack_value(self.builder, signature.return_type, address)
        return self.context.cast(self.builder, found, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Generate the code of ``target[index] = value``."""
        address = self._address_of(target_var, index_var)
        if address is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        item = self.typeof(target_var.name).dtype
        value = self.context.cast(self.builder, self.loadvar(value_var.name), self.typeof(value_var.name), item)
        self.context.pack_value(self.builder, item, value, address)
        return None

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Generate the code of an expression."""
        if expr.op == "static_getitem" and isinstance(self.typeof(expr.value.name), types.Array):
            return self.lower_getitem(resty, expr, expr.value, expr.index_var, self.fndesc.calltypes[expr])
        return super().lower_expr(resty, expr)

    def lower_inst(self, inst: Any) -> Any:
        """Generate the code of a statement."""
        if isinstance(inst, ir.StaticSetItem) and isinstance(self.typeof(inst.target.name), types.Array):
            return self.lower_setitem(inst.target, inst.index_var, inst.value, self.fndesc.calltypes[inst])
        return super().lower_inst(inst)
