"""JSON objects by a schema, as Spark's `from_json` reads them."""
