"""Linear models over labels, their stored examples, and searches for candidate labels."""

from .binary_svm import FormerRows, new_duties, no_former_rows
from .candidates import Listing, list_hard_negatives, list_labels, score_labels
from .examples import (
    ExampleParameters,
    StoredExamples,
    all_examples,
    append_examples,
    draw_replayed,
    give_ids,
    new_examples,
    rows_of_labels,
    slots_of_examples,
    some_examples,
    trimmed_examples,
    with_only_examples,
    with_room_for_examples,
)
from .hard_negatives import (
    ExamplePairs,
    LabelBlock,
    group_by_label,
    joined,
    one_block,
    pair_with_all,
    pair_with_answers,
    pair_with_hard_negatives,
    pairs_that_count,
    renumbered,
)
from .inference_weights import common_labels, new_digest
from .invariants import (
    check_duals,
    check_example_frame,
    check_examples,
    check_head,
    check_head_frame,
)
from .label_scorers import (
    HEAD_LOSSES,
    NEGLIGIBLE,
    Head,
    HeadLoss,
    HeadParameters,
    as_ready_as,
    cells_of_tables,
    count_in_means,
    dense_parts,
    forget_labels,
    is_in_lists,
    new_head,
    weights_of_labels,
    with_digest,
    with_index,
    with_labels,
    with_lists,
    with_lists_of,
    with_means_in_lists,
    with_only,
    without_digest,
    without_negligible_weights,
    without_tables,
)
from .lessons import CandidateSearch, HeadLesson, shortlist_all
from .multiclass_svm import (
    N_COMPETITORS,
    N_STORED,
    Duals,
    StoredDuals,
    duals_of_slots,
    has_converged,
    lacks_gaps,
    learn_labels,
    learn_shortlists,
    margin_wanted,
    measure_gaps,
    new_duals,
    no_stored_duals,
    resume,
    trim_duals,
    with_duals,
)
from .products import (
    AllScorers,
    all_above,
    all_scorers,
    best_of_all,
    best_of_others,
    exact_scores_of_all,
    top_of_all,
    unscaled_rows,
)
from .ridge import Expectation, enter_features, expect_rows, find_features, learn_expectations, learn_rewards
from .search import SearchEffort, always_found
from .shortlists import new_shortlists, shortlist_rows
from .solved_labels import Training, learn_afresh, learn_memberships
