"""What the commands share: one thread, subcommands, timing, data and rivals."""
