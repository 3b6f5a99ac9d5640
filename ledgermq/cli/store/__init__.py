"""Commands about a store directory: check, rebuild, convert, back up, restore.

Begin with ``store_commands.py``.
"""
