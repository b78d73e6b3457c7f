"""Operations on forests, for callers that have validated rows and ids.

A :class:`Forest` owns the state. Each operation is a function whose first argument is the forest.
"""

from .evidence import SavedEvidence
from .figure import plot_forest
from .filters import Filter
from .forest import OPTIONS, Forest
from .insert import insert_rows
from .learn import teach_rows, update_rows
from .query import draw_seed, enter_returned, note_returned, query_forest
from .reorganise import compact_memories, rebuild_trees, remove_ids, replace_rows, reroute_memories
from .supervise import Supervision, learn_in_passes
