"""Transactions to brokers: the edge of `keyrange.kafka.model.transactional_sender`."""
