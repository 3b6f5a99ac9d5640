"""Shipping: whole files of the log on their way to followers.

Begin with ``shipping.py``.
"""
