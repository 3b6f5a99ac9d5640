"""Rules and tables of the broker, without I/O: topics, groups, offsets, retries, holds.

Begin with ``broker_state.py``: all tables as one replicated state machine, changed by the commands
of ``state_commands.py`` alone. Bytes and times are handed in: there is no clock, no file and no
socket. Who serves clients by these rules is the broker process (``serving``). It may import
``wire``, ``formats`` and ``model``.
"""
