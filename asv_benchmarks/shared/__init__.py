"""Shared parts of the benchmark scripts: subcommands, timing, data and rivals."""
