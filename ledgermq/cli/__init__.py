"""The ``ledgermq`` command: a module a sub-command.

Begin with ``main.py``, which finds the sub-command and imports its module alone.
"""
