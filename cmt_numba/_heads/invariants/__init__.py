"""Invariants of the arrays of heads."""
