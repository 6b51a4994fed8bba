"""Key ranges of one partition, read side by side on a host: each byte is fetched once."""
