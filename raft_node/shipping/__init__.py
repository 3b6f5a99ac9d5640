"""Shipping: entries and whole files of the log on their way to followers.

Begin with ``entry_sender.py`` for entries, ``shipping.py`` for files.
"""
