"""Membership of a consumer group: heartbeats, allocation, rebalancing."""
