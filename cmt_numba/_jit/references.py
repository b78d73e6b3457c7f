"""References to named tuples of arrays, which kernels pass to inner functions.

A forest consists of about thirty arrays of at least seven machine words each. Numba passes a tuple to a function word
by word, so in a function that reads only two of the arrays, most of the code would copy arguments. A kernel that begins
with ``state = by_reference(state)`` stores the words once in its stack frame and passes a pointer. A reference has the
attributes of its tuple. An attribute that is a named tuple is again a reference; any other attribute is loaded when it
is read.

If a function is inlined, LLVM removes the pointer, and the machine code is the same as without references. If a pointer
were passed to a function that is not inlined, LLVM could not remove it anywhere, because the function might store it.
Therefore pass ``by_value(state)`` to these functions, and begin them with ``by_reference(state)``.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import models, register_model

from .arrays import instruction


class Reference(types.Type):
    """The Numba type of a reference to a named tuple of type ``target``, valid until the kernel returns."""

    def __init__(self, target):
        self.target = target
        super().__init__(name=f"Reference({target})")


@register_model(Reference)
class _ReferenceModel(models.PrimitiveModel):
    """The data model of a reference: a pointer."""

    def __init__(self, manager, reference):
        super().__init__(manager, reference, manager.lookup(reference.target).get_value_type().as_pointer())


class HeldType(types.Type):
    """The Numba type of a ``Held`` named tuple of type ``target``; see ``held.py``."""

    def __init__(self, target):
        self.target = target
        super().__init__(name=f"Held({target})")


register_model(HeldType)(_ReferenceModel)


@infer_getattr
class _ReferenceAttributes(AttributeTemplate):
    key = Reference

    def generic_resolve(self, reference: Any, name: str) -> Any:  # type: ignore[override]
        """Return the type of an attribute."""
        fields = reference.target.fields
        if name not in fields:
            return None
        field = reference.target[fields.index(name)]
        return Reference(field) if isinstance(field, types.BaseNamedTuple) else field


@lower_getattr_generic(Reference)
def _get_attribute(context, builder, reference, pointer, name):
    i = reference.target.fields.index(name)
    place, field = cgutils.gep_inbounds(builder, pointer, 0, i), reference.target[i]
    if isinstance(field, types.BaseNamedTuple):
        return place
    return impl_ret_borrowed(context, builder, field, builder.load(place))


def _unchanged(state):
    return state


@instruction(_unchanged)
def by_reference(_context, target):
    if isinstance(target, HeldType):
        # Copy the words into the stack frame, where LLVM knows that the kernel's writes do not change them.
        def copy(_target_context, builder, _signature, arguments):
            return cgutils.alloca_once_value(builder, builder.load(arguments[0]))

        return Reference(target.target)(target), copy
    if not isinstance(target, types.BaseNamedTuple):
        return None

    def store(_target_context, builder, _signature, arguments):
        return cgutils.alloca_once_value(builder, arguments[0])

    return Reference(target)(target), store


@instruction(_unchanged)
def by_value(_context, reference):
    if not isinstance(reference, Reference):
        return None

    def load(context, builder, signature, arguments):
        return impl_ret_borrowed(context, builder, signature.return_type, builder.load(arguments[0]))

    return reference.target(reference), load
