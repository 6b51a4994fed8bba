"""What tests read: logs, batches, tables and documents, made up."""
