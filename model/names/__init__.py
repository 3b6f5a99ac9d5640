"""Names that RocketMQ and we have for topics, tables and properties of messages."""
