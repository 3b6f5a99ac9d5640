"""The Index: written, read and looked up by key.

Begin with ``index_files.py``.
"""
