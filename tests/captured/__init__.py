"""Tables of databases, and what Debezium writes of their changes."""
