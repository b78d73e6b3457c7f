"""What tests use behind the doors of rooms: modules, rooms and private attributes, each named once.

Tests of one room may import names through its door. Everything else private is reached by a name of this module, so
that a change within a room changes at most this module and the tests of that room. `tests/test_rooms.py` counts them.
"""

# ruff: noqa: F401

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from cmt_numba import _change as change_room
from cmt_numba import _engine as engine_room
from cmt_numba import _forest as forest_room
from cmt_numba import _heads as heads_room
from cmt_numba import _index as index_room
from cmt_numba import _jit as jit_room
from cmt_numba import _kernels as kernels_room
from cmt_numba import _linear as linear_room
from cmt_numba import _warmup as warmup_room
from cmt_numba.bandits import _checks as bandits_checks
from cmt_numba.bandits import _cmt_bandit as bandits_cmt_bandit
from cmt_numba.bandits import _folder as bandits_folder
from cmt_numba.bandits import _memory as bandits_memory
from cmt_numba.bandits import _models as bandits_models
from cmt_numba.bandits import _reward_kernels as bandits_reward_kernels
from cmt_numba.bandits import _rules as bandits_rules
from cmt_numba.bandits.evaluation import _estimators as bandits_estimators
from cmt_numba.cli import _app as cli_app
from cmt_numba.cli import _features as cli_features
from cmt_numba.cli import _models as cli_models
from cmt_numba.distributed import _actors as distributed_actors
from cmt_numba.distributed import _calls as distributed_calls
from cmt_numba.distributed import _classifier_shard as distributed_classifier_shard
from cmt_numba.distributed import _cluster as distributed_cluster
from cmt_numba.distributed import _folder as distributed_folder
from cmt_numba.distributed import _moves as distributed_moves
from cmt_numba.distributed import _resizing as distributed_resizing
from cmt_numba.distributed import _results as distributed_results
from cmt_numba.distributed import _shard as distributed_shard
from cmt_numba.distributed import _sharded_classifier as distributed_sharded_classifier
from cmt_numba.distributed import _store_access as distributed_store_access
from cmt_numba.distributed import _topology as distributed_topology
from cmt_numba.estimators import _calibration as estimators_calibration
from cmt_numba.estimators import _classification_model as estimators_classification_model
from cmt_numba.estimators import _durable as estimators_durable
from cmt_numba.estimators import _label_index as estimators_label_index
from cmt_numba.estimators import _labels as estimators_labels
from cmt_numba.estimators import _neighbors as estimators_neighbors
from cmt_numba.estimators import _replay as estimators_replay
from cmt_numba.estimators import _values as estimators_values
from cmt_numba.evaluation import _answers as evaluation_answers
from cmt_numba.evaluation import _rivals as evaluation_rivals
from cmt_numba.journal import _entries as journal_entries
from cmt_numba.journal import _folder as journal_folder
from cmt_numba.persistence import _container as persistence_container
from cmt_numba.persistence import _objects as persistence_objects
from cmt_numba.reranking import _models as reranking_models
from cmt_numba.reranking import _pairs as reranking_pairs
from cmt_numba.sequences import _alignments as sequences_alignments
from cmt_numba.sequences import _costs as sequences_costs
from cmt_numba.sequences import _encoding as sequences_encoding
from cmt_numba.sequences import _sequence_memory as sequences_sequence_memory
from cmt_numba.sequences import _spaces as sequences_spaces
from cmt_numba.sequences import _vp_tree as sequences_vp_tree
from cmt_numba.store import _records as store_records
from cmt_numba.store import _results as store_results
from cmt_numba.store import _state as store_state
from cmt_numba.text import _labelled as text_labelled
from cmt_numba.text import _skipgram as text_skipgram
from cmt_numba.text import _text_classifier as text_text_classifier
from cmt_numba.text import _vocabulary as text_vocabulary
from cmt_numba.tree import _folder as tree_folder

model_of = attrgetter("_model")
contents_of = attrgetter("_contents")
forest_of = attrgetter("_forest")
inner_state = attrgetter("_state")
client_of = attrgetter("_client")
journal_of = attrgetter("_journal")
lock_of = attrgetter("_lock")
keys_of = attrgetter("_keys")
by_context_of = attrgetter("_by_context")
waiting_readers = attrgetter("_kept_waiting")
grams_of = attrgetter("_grams")
peers_of = attrgetter("_peers")
edit_costs_of = attrgetter("_costs")
held_by = attrgetter("_held")
postings_of = attrgetter("_postings")
filters_of = attrgetter("_filters")
move_under_way = attrgetter("_under_way")
index_of = attrgetter("_index")
neighbors_of = attrgetter("_neighbors")
feedback_of = attrgetter("_feedback")
folder_of = attrgetter("_folder")
last_change = attrgetter("_last")
table_of = attrgetter("_table")
rooms_of = attrgetter("_rooms")
changer_of = attrgetter("_changer")
constraints_of = attrgetter("_constraints")
stored_in = attrgetter("_stored")
pending_decisions = attrgetter("_pending._decisions")


def _method(name: str) -> Callable[..., Any]:
    """Return a function that calls a method of its first argument."""
    return lambda owner, *arguments: getattr(owner, name)(*arguments)


ask_shards = _method("_ask_all")
opened = _method("_open")
made_of = _method("_made_of")
check_taught = _method("_check_taught")
choice_of = _method("_choice")
slots_of = _method("_slots_of")
estimates_of = _method("_estimates")
built = _method("_built")
best_level = _method("_best_level")
compared_actions = _method("_candidates")
rows_of = _method("_rows")
list_all = _method("_list_all")
hashed_by = _method("_hashed")


def set_durations(journal: Any, *, changes: float | None = None, snapshot: float | None = None) -> None:
    """Let a journal think that its changes, or its latest snapshot, took some seconds."""
    for name, seconds in (("_journal", changes), ("_last_snapshot", snapshot)):
        if seconds is not None:
            setattr(journal, name, getattr(journal, name)._replace(seconds=seconds))


def set_costs(distance: Any, costs: Any) -> None:
    """Replace the costs of a distance."""
    distance._costs = costs


def set_timeout(actors: Any, seconds: float) -> None:
    """Change how long the actors of shards are waited for."""
    actors._timeout = seconds


def state_of(tree: Any) -> Any:
    """Return the arrays of a tree, or None before its first memories."""
    return forest_of(tree).state


def trained_head(estimator: Any) -> Any:
    """Return the scorers of the labels of a classifier."""
    return model_of(estimator).index.head


def candidates_of(bandit: Any, X: Any, choices: Any = None) -> Any:
    """Return the actions that a bandit compares in some contexts, with their estimates."""
    return compared_actions(bandit, rows_of(bandit, X), choices)


def prove(tree: Any) -> None:
    """Let updates of a tree learn from all rewards, as if earlier ones had depended on their memories."""
    forest_of(tree).evidence.sums.sums[: forest_room.evidence.N_SINGLE] = 1000.0, 250.0, 250.0, 250.0, 250.0, 250.0
