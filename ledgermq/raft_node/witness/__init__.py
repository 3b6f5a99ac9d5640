"""A witness without bodies: its process, and the file with all that it keeps.

Begin with ``witness_process.py``.
"""
