"""Metrics: which series there are, where their values come from, how they are written.

Begin with ``series.py``.
"""
