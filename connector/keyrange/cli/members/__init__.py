"""`keyrange members`."""
