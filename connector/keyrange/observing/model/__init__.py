"""The figures of queries, without a clock."""
