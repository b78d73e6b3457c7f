"""Subcommands that the scripts include, by topic."""
