"""The commands, one plain function each. Heavy imports are inside, so that `--help` is instant."""
