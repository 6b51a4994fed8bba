"""What a task decides while a user's function works."""
