"""What the broker does for a cluster of groups: it is told of one, and has its home's rows.

Begin with ``cluster_calls.py``.
"""
