"""A Kafka broker on this machine, and the jars that jobs and tests need."""
