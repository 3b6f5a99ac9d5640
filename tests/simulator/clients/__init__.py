"""Simulated clients: producers, consumers, users of services, writers of sinks.

Begin with ``producer.py``.
"""
