"""``ledgermq spark``: its jobs and their options.

Begin with ``spark_command.py``.
"""
