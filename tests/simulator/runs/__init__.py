"""Runs: a seed decides on group, load and faults.

Begin with ``runs.py``.
"""
