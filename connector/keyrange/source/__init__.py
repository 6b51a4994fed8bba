"""What Spark calls: the data source, its streams and batches, planning and reading."""
