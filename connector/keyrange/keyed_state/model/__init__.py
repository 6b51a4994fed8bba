"""Which file says what of which keys, and when files are made one."""
