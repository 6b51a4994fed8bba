"""Kafka's messages, built by kafka-python; nothing else imports it."""
