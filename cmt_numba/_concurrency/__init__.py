"""Threads: a reader and writer lock, and workers."""
