"""Text for people: what others wrote made plain, and sizes."""
