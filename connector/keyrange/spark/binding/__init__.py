"""How tasks are given what they read when they run: a service in the planning process, and its
callers in the tasks."""
