"""Tables of the broker, one module each, with the file that each has.

Begin with ``table.py``, what all of them have, and ``table_changes.py``.
"""
