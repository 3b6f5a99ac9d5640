"""Leadership, as clients are told of it: who leads, and how far a new leader has come.

Begin with ``standing.py``.
"""
