"""From bytes to columns: each format of keys and values is a decoder of payloads."""
