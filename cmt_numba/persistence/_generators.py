"""Generators of random numbers, NumPy's default one, as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._trees import take

_MOST = {"state": 2**128, "inc": 2**128, "has_uint32": 2, "uinteger": 2**32}


def generator_fields(generator: np.random.Generator) -> dict[str, int]:
    """Return the state of a generator as JSON."""
    state = generator.bit_generator.state
    numbers = state["state"] | {"has_uint32": state["has_uint32"], "uinteger": state["uinteger"]}
    return {key: int(numbers[key]) for key in _MOST}


def read_generator(name: str, fields: Any) -> np.random.Generator:
    """Return the generator with the state that JSON describes.

    Raises
    ------
    ValueError
        If it describes none; the message calls it by its name.
    """
    if type(fields) is not dict:
        raise ValueError(f"{name} must be a mapping")
    for key, most in _MOST.items():
        if not 0 <= take(fields, key, int) < most:
            raise ValueError(f"{name} is no state of a generator of random numbers")
    bits = np.random.PCG64(0)
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": fields["state"], "inc": fields["inc"]},
        "has_uint32": fields["has_uint32"],
        "uinteger": fields["uinteger"],
    }
    return np.random.Generator(bits)
