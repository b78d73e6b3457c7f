"""A loss that is added to an enumeration but to no kernel is refused; it must not run the rule of another loss."""

import numpy as np
import pytest
import scipy.sparse
from internals import forest_of, model_of, trained_head

from cmt_numba import CMTClassifier, ContextualMemoryTree

UNKNOWN = 99

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8)).astype(np.float32)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("name", ["router_loss", "scorer_loss"])
def test_unknown_losses_of_trees(form, name):
    tree = ContextualMemoryTree(leaf_multiplier=1.0, random_state=0)
    ids = tree.insert(form(X))
    forest = forest_of(tree)
    known = forest.state.parameters
    forest.state = forest.state._replace(parameters=known._replace(**{name: UNKNOWN}))
    hits = tree.query(form(X), k=2)
    with pytest.raises(ValueError, match=name):
        tree.insert(form(X)) if name == "router_loss" else tree.update(form(X), hits, hits.ids == ids[:, None])
    forest.state = forest.state._replace(parameters=known)
    assert len(tree) == 60
    tree.check_invariants()


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_unknown_losses_of_heads(form):
    labels = np.arange(60) % 3
    classifier = CMTClassifier(loss="logistic", random_state=0).fit(form(X), labels)
    head = trained_head(classifier)
    model_of(classifier).index.head = head._replace(parameters=head.parameters._replace(loss=UNKNOWN))
    with pytest.raises(ValueError, match="loss"):
        classifier.partial_fit(form(X), labels)
