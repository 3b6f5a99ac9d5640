"""The log's files: entries and records written and read, verified where they come in.

Begin with ``log_writer.py``.
"""
