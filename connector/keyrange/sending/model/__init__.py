"""Values and rules of sending, without I/O."""
