"""Names of topics, tables and properties, RocketMQ's and ours.

Each module has the names of one subject.
"""
