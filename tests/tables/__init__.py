"""Commit tables and assignment tables in tests, and the naive model of what is in them."""
