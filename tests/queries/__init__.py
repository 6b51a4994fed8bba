"""Queries, jobs and consumers that a test starts, follows and ends."""
