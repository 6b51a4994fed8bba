"""Work in the task that reads, straight into a Delta table."""
