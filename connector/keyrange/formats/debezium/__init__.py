"""Changes of tables as Debezium writes them: an envelope with the row before and after."""
