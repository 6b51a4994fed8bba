"""Typed keys and values of records: which format and schema they have, and what is read of them."""
