"""The options of a forest."""

from .._forest import EVICTIONS, MOST_MEMORIES, RouterLoss, ScorerLoss
from .._validation import MOST_REROUTES, Checked, Constraint, Integer, OneOf, Optional, Real, check_seed

ROUTER_LOSSES = tuple(loss.name.lower() for loss in RouterLoss)
SCORER_LOSSES = tuple(loss.name.lower() for loss in ScorerLoss)

OPTIONS: dict[str, Constraint] = {
    "n_trees": Integer(1, 2**15),
    "alpha": Real(0.0, 1.0, above=True),
    "leaf_multiplier": Real(0.0, 2.0**20, above=True),
    "n_reroutes": Integer(0, MOST_REROUTES),
    "router_loss": OneOf(ROUTER_LOSSES),
    "router_learning_rate": Real(0.0, 1e6, above=True),
    "sure_margin": Real(0.0, 1e6),
    "scorer_loss": OneOf(SCORER_LOSSES),
    "scorer_learning_rate": Real(0.0, 1e6, above=True),
    "max_memories": Optional(Integer(1, MOST_MEMORIES)),
    "eviction": OneOf(EVICTIONS),
    "n_threads": Optional(Integer(1, 2**15)),
    "random_state": Checked(check_seed, "int or numpy.random.SeedSequence"),
}
"""The constraints on the options of a tree. Estimators use them for their own tree options."""
