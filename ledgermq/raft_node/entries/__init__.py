"""Entries between members: read, sent, verified where they come in, kept as long as needed.

Begin with ``entry_exchange.py``.
"""
