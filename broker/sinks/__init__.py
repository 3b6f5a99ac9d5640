"""Sinks: staged rows, commits of their batches, and the messages that they become."""
