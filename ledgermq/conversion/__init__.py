"""Conversion of a store into another one: upgrade, downgrade, backup, and their manifests.

Begin with ``conversion_journal.py``, by which a conversion that was cut off goes on or is undone,
and ``backup_create.py``. It may import ``repair``, ``store`` and below.
"""
