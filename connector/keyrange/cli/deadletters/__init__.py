"""`keyrange deadletters`."""
