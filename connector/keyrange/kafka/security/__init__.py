"""How a connection is secured: SASL, TLS stores, tokens."""
