"""A user's function on records, in the task that has them, and what became of each record."""
