"""Simulated clients: producers, consumers, users of services, writers of sinks."""
