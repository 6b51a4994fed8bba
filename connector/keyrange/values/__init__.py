"""From bytes to columns: the formats of keys and values, each a decoder of payloads."""
