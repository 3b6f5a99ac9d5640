"""Committed view of the store for the broker: queues and records up to what is dispatched.

Begin with ``readable_store.py``.
"""
