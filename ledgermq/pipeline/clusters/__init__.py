"""Queries over all groups of a cluster: each group is read as one group is.

Begin with ``cluster_stream.py``.
"""
