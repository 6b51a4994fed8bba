"""The command `keyrange`: a folder or a module for each noun."""
