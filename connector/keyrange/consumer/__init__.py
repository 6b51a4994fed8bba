"""The plain consumer: `keyrange.Consumer`, key ranges without Spark."""
