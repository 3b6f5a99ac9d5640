"""Slaves of RocketMQ's that follow this node: a process of its own sends them the log."""
