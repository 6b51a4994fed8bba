"""Kafka's bytes to columns."""
