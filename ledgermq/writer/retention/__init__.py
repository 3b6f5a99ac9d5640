"""Retention: which files of the log may go, and whether the disk has room for more.

Begin with ``log_retention.py``.
"""
