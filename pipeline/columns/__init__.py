"""Arrow columns of messages, made from the log's bytes."""
