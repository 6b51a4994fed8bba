"""Where things are kept: Delta tables as places for rows, directories, checkpoint files."""
