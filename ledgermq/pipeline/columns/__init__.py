"""Arrow columns of messages, made from the log's bytes.

Begin with ``message_schema.py``, then ``record_columns.py``.
"""
