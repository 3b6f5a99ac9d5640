"""Receipts of messages: what makes checkpoints, and has them in the log.

Begin with ``receipt_service.py``.
"""
