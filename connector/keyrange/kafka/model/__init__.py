"""What the room of Kafka says as plain values: no clock, no socket."""
