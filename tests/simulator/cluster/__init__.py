"""Whole clusters of groups, each group a model; what they say to one another is the product's.

Begin with ``cluster_run.py``.
"""
