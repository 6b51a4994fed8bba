"""`keyrange commits`."""
