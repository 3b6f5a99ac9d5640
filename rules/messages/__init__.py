"""Rules of messages on their way: holds, pulls, retries, timers, transactions, rates.

Begin with ``pull_rules.py`` and ``holds.py``.
"""
