"""LedgerMQ: a replicated message broker that keeps RocketMQ's store."""

__version__ = "0.3.1"
