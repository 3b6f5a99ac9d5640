"""The broker's replicated state: proposed to the log, applied from it, kept in files.

Begin with ``state_log.py``.
"""
