"""Scrub and repair: damaged entries found and fetched from other members.

Begin with ``scrub.py``.
"""
