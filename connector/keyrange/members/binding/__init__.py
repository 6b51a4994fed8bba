"""Late binding: tasks ask the planning process what they read."""
