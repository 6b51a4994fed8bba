"""Brokers for tests: real ones, scripted ones, and what logs in to them."""
