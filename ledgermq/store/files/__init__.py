"""Families of files and small files: mapped, appended, replaced whole, synced.

Begin with ``append_files.py`` and ``mapped_files.py``, the two sides of a family.
"""
