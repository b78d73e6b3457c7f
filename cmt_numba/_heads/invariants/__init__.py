"""Invariants of heads and of the map from keys to expected values."""
