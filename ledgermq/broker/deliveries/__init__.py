"""Delayed delivery: delay levels and timers, and the moves that both are made of.

Begin with ``moves.py``.
"""
