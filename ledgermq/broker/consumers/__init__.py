"""Calls of consumers in groups: membership, locks, messages given back, dead letters.

Begin with ``member_calls.py``.
"""
