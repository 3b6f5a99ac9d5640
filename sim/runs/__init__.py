"""Runs: a seed decides on group, load and faults."""
