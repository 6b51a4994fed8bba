"""Rows in files to topics: which sender sends which files, and what it leaves as a mark."""
