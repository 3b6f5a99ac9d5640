"""Tables: archives as Apache Iceberg tables, one snapshot a run.

Begin with ``iceberg_table.py``.
"""
