"""Typed columns: bodies as fields, by the schemas of their topic.

Begin with ``value_columns.py``.
"""
