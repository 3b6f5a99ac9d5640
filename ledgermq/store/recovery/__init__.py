"""Recovery of the log after a stop: its end, damage, and logs that arrive from elsewhere.

Begin with ``recovery.py``.
"""
