"""Schema registries: schemas by the ids that stand before payloads."""
