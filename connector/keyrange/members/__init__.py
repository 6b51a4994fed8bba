"""Members: which executor reads which key ranges, under which name."""
