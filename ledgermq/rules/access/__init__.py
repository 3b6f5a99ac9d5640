"""Users: keys, addresses, rights, sealed secrets.

Begin with ``access.py``.
"""
