"""The example that tries another router and another scorer."""

from conftest import load_script


def test_other_routers_and_scorers_are_compared():
    figures = load_script("examples/own_router.py").compare(60)
    assert list(figures) == ["paper", "random routers", "Manhattan scorer"]
    assert all(0.0 < figure <= 1.0 for row in figures.values() for figure in row)
