"""`keyrange checkpoint`."""
