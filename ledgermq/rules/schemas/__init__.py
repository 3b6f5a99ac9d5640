"""Schemas of topics: their table, what a change of it needs, and who reads what whom has written.

Begin with ``schema_table.py`` and ``schema_plans.py``.
"""
