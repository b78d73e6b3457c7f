"""No documented pair of vectorizer and estimator has become worse."""

import pytest
from documented_pairs import PAIRS, ROOM, error_of, predictions_of, stored


@pytest.mark.parametrize("pair", PAIRS)
def test_error_does_not_rise(pair: str):
    assert error_of(pair, predictions_of(pair)) <= stored()[pair] + ROOM
