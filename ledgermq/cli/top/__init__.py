"""``ledgermq top``: the live view's figures, screen and terminal.

Begin with ``top_command.py``.
"""
