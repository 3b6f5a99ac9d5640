"""Settings: their names, types, rules and files; RocketMQ's ``broker.conf``."""
