"""A node's settings: loaded at the start, and read again while it runs.

Begin with ``settings_loading.py``.
"""
