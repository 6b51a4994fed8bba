"""Windows, deduplication and the last row of each key, of state and timers in mode arrow."""
