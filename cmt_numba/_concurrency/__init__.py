"""Threads: the reader-writer lock and worker threads."""
