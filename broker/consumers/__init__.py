"""Calls of consumers in groups: membership, locks, messages given back, dead letters."""
