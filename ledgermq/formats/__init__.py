"""Bytes of a store as values, and compiled kernels that read many of them at once.

A codec opens with its layout: offset, size, field, unit. Begin with ``records/message.py``, one
record of the log, and ``dledger_entry.py``, the entry around it. The kernels are the modules with
an underscore; ``kernels/kernel.py`` selects them. It may import ``model``, and opens no file.
"""
