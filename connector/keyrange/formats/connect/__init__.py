"""Records of Kafka Connect, as its JSON and Avro converters write them."""
