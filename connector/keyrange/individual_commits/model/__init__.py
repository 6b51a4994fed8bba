"""The algebra of individual commits."""
