"""What everything speaks of: partitions, offsets, key ranges, positions, volumes."""
