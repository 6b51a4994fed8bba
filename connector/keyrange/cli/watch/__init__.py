"""`keyrange watch`."""
