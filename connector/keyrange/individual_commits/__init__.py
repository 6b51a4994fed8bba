"""Individual commits: what the driver and the tasks of a batch do, and what users call."""
