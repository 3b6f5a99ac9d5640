"""Request codes of RocketMQ's tools: topics, groups, users, brokers, connections."""
