"""The benchmark: what keyrange reaches, beside Spark's own Kafka connector on the same machine."""
