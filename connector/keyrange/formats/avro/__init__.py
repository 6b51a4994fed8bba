"""Avro's binary encoding: the writer's schema to the reader's, by Avro's rules."""
