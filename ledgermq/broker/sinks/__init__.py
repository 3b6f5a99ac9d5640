"""Sinks: staged rows, commits of their batches, and the messages that they become.

Begin with ``sink_service.py``.
"""
