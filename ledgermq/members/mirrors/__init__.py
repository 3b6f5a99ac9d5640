"""Mirrors of a group at another site: mark of their store, promotion, and the way back.

Begin with ``mirror_mark.py``, the file that says that a store is a mirror's.
"""
