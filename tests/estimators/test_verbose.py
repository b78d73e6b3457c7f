"""Progress bars of ``verbose=True``, which do not change results."""

from pathlib import Path

import numpy as np
import pytest

from cmt_numba import CMTClassifier, CMTMultilabelClassifier, CMTRetriever

X, Y = np.tile(np.eye(6, dtype=np.float32), (12, 1)), np.tile(np.eye(6, dtype=int), (12, 1))
FEW = {"random_state": 0}


@pytest.mark.parametrize(
    ("make", "y", "shown"),
    [
        (lambda **options: CMTClassifier(**FEW, **options), list("abcabc") * 12, ["pass"]),
        (lambda **options: CMTMultilabelClassifier(**FEW, **options), Y, ["block of common labels"]),
        (lambda **options: CMTRetriever("value", random_state=0, **options), X, ["insert", "pass"]),
        (lambda **options: CMTRetriever("key", random_state=0, **options), X, ["insert"]),
    ],
    ids=["classifier", "multilabel", "by value", "by key"],
)
def test_bars_of_each_part(make, y, shown: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path):
    silent = make().fit(X, y)
    assert capsys.readouterr().err == ""
    verbose = make(verbose=True).fit(X, y)
    printed = capsys.readouterr().err
    for unit in shown:
        assert f"{unit}/s" in printed or f"s/{unit}" in printed
    np.testing.assert_array_equal(verbose.predict(X), silent.predict(X))
    verbose.save(tmp_path / "estimator")
    assert type(verbose).load(tmp_path / "estimator").verbose is True
    with pytest.raises(TypeError, match="verbose must be True or False"):
        verbose.set_params(verbose=2).partial_fit(X, y)
