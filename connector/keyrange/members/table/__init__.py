"""The assignment table."""
