"""The commit table and the dead letters, as rows of Delta tables."""
