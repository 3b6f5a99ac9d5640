"""Measurements of a node's host, disk and group, with findings (``ledgermq doctor``).

Begin with ``examination.py``: all checks, in order. It may import ``daemon``, ``process`` and
below, and leaves nothing behind.
"""
