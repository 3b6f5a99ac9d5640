"""Rules of messages on their way: pulls, retries, timers, transactions, rates.

Begin with ``pull_rules.py``.
"""
