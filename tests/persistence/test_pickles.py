"""Pickles refer only to names that later versions keep."""

import pickle
import pickletools
import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from saved import dense_rows, objects, sparse_rows


@pytest.fixture(scope="module")
def things() -> dict[str, Any]:
    return objects(40)


def globals_of(pickled: bytes) -> set[str]:
    return {str(argument) for operation, argument, _ in pickletools.genops(pickled) if operation.name == "GLOBAL"}


def test_pickles_refer_to_public_classes_only(things: dict[str, Any]):
    tree = things["dense"]
    for thing in (*things.values(), (tree.query(np.eye(5)), tree.leaves())):
        ours = {name for name in globals_of(pickle.dumps(thing, protocol=2)) if name.startswith("cmt_numba")}
        assert ours
        assert not [name for name in ours if re.search(r"[. ]_", name)]


def predicted(estimator: Any) -> Any:
    d = estimator.n_features_in_
    found = estimator.predict(dense_rows(9, d) if d == 5 else sparse_rows(9, d))
    return found.toarray().tolist() if scipy.sparse.issparse(found) else found.tolist()
