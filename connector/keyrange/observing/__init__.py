"""What is told of queries to people and their tools: logs, files of progress, metrics.

Nothing here may fail a query, and nothing of a record is told.
"""
