"""The pure part of planning: offsets, checkpoints, limits."""
