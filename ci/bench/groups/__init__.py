"""The groups of figures: every module in here that holds a `GROUP` is one (see bench.registry)."""
