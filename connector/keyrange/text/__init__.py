"""Text for people: what others wrote made plain, and sizes; and tables that are written as text."""
