"""Receipts of messages: Merkle trees, signed checkpoints over them, and proofs by them.

Begin with ``checkpoint.py``.
"""
