"""Vocabulary of all packages: ids, errors, limits and settings.

Begin with ``ids.py``, which says what a position, an index and a queue offset are, and with
``errors.py``; settings are ``config/``. It imports nothing of ours, and has no clock, no file and
no socket.
"""
