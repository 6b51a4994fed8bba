"""Spark in tests: its JVMs, its Python processes, Connect, a standalone cluster, notebooks."""
