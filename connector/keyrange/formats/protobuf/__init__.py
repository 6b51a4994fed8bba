"""Values in Protobuf's binary format."""
