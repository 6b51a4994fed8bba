"""`keyrange volumes`."""
