"""Records from the leaders of partitions to Arrow batches."""
