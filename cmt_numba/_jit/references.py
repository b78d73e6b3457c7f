"""References to named tuples of arrays, which kernels pass to inner functions.

A forest consists of about thirty arrays of at least seven machine words each. Numba passes a tuple to a function word
by word, so in a function that reads only two of the arrays, most of the code would copy arguments. A kernel that begins
with ``state = by_reference(state)`` stores the words once in its stack frame and passes a pointer. A reference has the
attributes of its tuple. An attribute that is a named tuple is again a reference; any other attribute is loaded when it
is read.

If a function is inlined, LLVM removes the pointer, and the machine code is the same as without references. A function
that is not inlined might store the pointer, so LLVM could not remove it anywhere. A reference therefore has two
pointers: to the words for inlined functions, and to a copy for other functions. Those receive the address of the copy.
If they also begin with ``state = by_reference(state)``, loops need not load the words again.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed, lower_cast, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import models, register_model

from .arrays import do_nothing, instruction


class Reference(types.Type):
    """The Numba type of a reference to a named tuple of type ``target``, valid until the kernel returns."""

    def __init__(self, target):
        self.target = target
        super().__init__(name=f"Reference({target})")


class HeldType(types.Type):
    """The Numba type of an address of a named tuple of type ``target``, for example of a ``Held`` one (``held.py``)."""

    def __init__(self, target):
        self.target = target
        super().__init__(name=f"Held({target})")


@register_model(HeldType)
class _AddressModel(models.PrimitiveModel):
    """The data model of an address: a pointer."""

    def __init__(self, manager, held):
        super().__init__(manager, held, manager.lookup(held.target).get_value_type().as_pointer())


_OWN, _SHARED = 0, 1


@register_model(Reference)
class _ReferenceModel(models.StructModel):
    """The data model of a reference: a pointer for inlined functions, and one for functions that are not inlined."""

    def __init__(self, manager, reference):
        held = HeldType(reference.target)
        super().__init__(manager, reference, [("own", held), ("shared", held)])


class _Attributes(AttributeTemplate):
    def generic_resolve(self, reference: Any, name: str) -> Any:  # type: ignore[override]
        """Return the type of an attribute."""
        fields = reference.target.fields
        if name not in fields:
            return None
        field = reference.target[fields.index(name)]
        return type(reference)(field) if isinstance(field, types.BaseNamedTuple) else field


@infer_getattr
class _ReferenceAttributes(_Attributes):
    key = Reference


@infer_getattr
class _HeldAttributes(_Attributes):
    key = HeldType


def _pack(context, builder, reference, own, shared):
    """Return a value of type ``reference``."""
    empty = ir.Constant(context.get_value_type(reference), ir.Undefined)
    return builder.insert_value(builder.insert_value(empty, own, _OWN), shared, _SHARED)


@lower_getattr_generic(Reference)
def _get_attribute(context, builder, reference, pointers, name):
    i = reference.target.fields.index(name)
    field, own = reference.target[i], cgutils.gep_inbounds(builder, builder.extract_value(pointers, _OWN), 0, i)
    if isinstance(field, types.BaseNamedTuple):
        shared = cgutils.gep_inbounds(builder, builder.extract_value(pointers, _SHARED), 0, i)
        return _pack(context, builder, Reference(field), own, shared)
    return impl_ret_borrowed(context, builder, field, builder.load(own))


@lower_getattr_generic(HeldType)
def _get_shared_attribute(context, builder, held, pointer, name):
    i = held.target.fields.index(name)
    place, field = cgutils.gep_inbounds(builder, pointer, 0, i), held.target[i]
    if isinstance(field, types.BaseNamedTuple):
        return place
    return impl_ret_borrowed(context, builder, field, builder.load(place))


def _unchanged(state):
    return state


@instruction(_unchanged)
def by_reference(_context, target):
    if isinstance(target, Reference):
        return target(target), lambda _context, _builder, _signature, arguments: arguments[0]
    if not isinstance(target, HeldType | types.BaseNamedTuple):
        return None
    signature = Reference(target.target if isinstance(target, HeldType) else target)(target)

    def refer(context, builder, signature, arguments):
        is_held, words = isinstance(signature.args[0], HeldType), arguments[0]
        shared = words if is_held else cgutils.alloca_once_value(builder, words)
        # LLVM removes this copy, because it knows that the kernel's writes do not change it.
        own = cgutils.alloca_once(builder, shared.type.pointee)
        size = context.get_constant(types.intp, context.get_abi_sizeof(shared.type.pointee))
        cgutils.raw_memcpy(builder, own, shared, size, 1)
        return _pack(context, builder, signature.return_type, own, shared)

    return signature, refer


def as_parameter(kind, is_inlined):
    """Return the type as which a function receives an argument: references if inlined, otherwise addresses."""
    if isinstance(kind, HeldType | Reference):
        return Reference(kind.target) if is_inlined else HeldType(kind.target)
    return kind


@lower_cast(Reference, HeldType)
def _to_address(_context, builder, _reference, _held, pointers):
    return builder.extract_value(pointers, _SHARED)


@lower_cast(HeldType, Reference)
def _to_reference(context, builder, _held, reference, pointer):
    return _pack(context, builder, reference, pointer, pointer)


def _owners_in(builder, kind, value):
    """Yield the type and the value of each array or named tuple in a nested tuple, which may contain references."""
    if isinstance(kind, Reference):
        yield kind.target, builder.load(builder.extract_value(value, _OWN))
    elif isinstance(kind, types.Tuple):
        for i, it in enumerate(kind):
            yield from _owners_in(builder, it, builder.extract_value(value, i))
    else:
        yield kind, value


@instruction(do_nothing)
def release(_context, work):
    """Free an array that the kernel has allocated, or all arrays in a nested tuple of such arrays or references."""

    def lower(context, builder, signature, arguments):
        runtime = context.subtarget(enable_nrt=True).nrt
        for kind, value in _owners_in(builder, signature.args[0], arguments[0]):
            runtime.decref(builder, kind, value)
        return context.get_dummy_value()

    return types.void(work), lower
