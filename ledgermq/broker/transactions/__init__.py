"""Transactions: half messages, their ends, and the questions about those without one.

Begin with ``transaction_service.py``.
"""
