"""The options that estimators share, and the values that they may have.

Each estimator declares its options in its signature, with their defaults, and here or in its class, with their
constraints. From these come all checks; docstrings are tested against them.
"""

from __future__ import annotations

from sklearn.utils import check_random_state

from .._validation import MOST_PASSES, Checked, Constraint, Flag, Integer, Optional, check_jobs
from ..tree import OPTIONS

PASSES = Integer(0, MOST_PASSES)

OF_ALL: dict[str, Constraint] = {
    "n_trees": Optional(OPTIONS["n_trees"]),
    "n_probes": Optional(Integer(1)),
    "alpha": OPTIONS["alpha"],
    "n_reroutes": OPTIONS["n_reroutes"],
    "n_jobs": Checked(check_jobs, "int"),
    "random_state": Checked(check_random_state, "int, numpy.random.RandomState or None"),
    "verbose": Flag(),
}
"""The options of every estimator."""

FIT_ONLY = frozenset({"leaf_multiplier", "alpha", "n_reroutes", "n_jobs", "random_state"})
"""Options that take effect when a forest is made, and not later."""
