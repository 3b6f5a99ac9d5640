"""The check of a whole store directory, part by part.

Begin with ``check_store.py``.
"""
