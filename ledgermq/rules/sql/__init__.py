"""SQL-92 filters: grammar and meaning.

Begin with ``sql_filter.py``.
"""
