"""`keyrange report`."""
