"""Request codes of consumers: pulls, offsets, locks, messages given back, look-ups.

Begin with ``pull_codes.py``.
"""
