"""The command line in tests, and what it prints."""
