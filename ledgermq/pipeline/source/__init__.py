"""Sources of rows: store directories, replicas, running clusters.

Begin with ``row_source.py``, the interface, and ``store_source.py``.
"""
