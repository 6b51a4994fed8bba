"""The pure part of key ranges."""
