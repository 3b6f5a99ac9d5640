"""Rules and tables of the broker, without I/O: topics, groups, offsets, retries, holds.

Begin with ``state/broker_state.py``: all tables as one replicated state machine, changed by the
commands of ``state/state_commands.py`` alone. Bytes and times are handed in: there is no clock, no
file and no socket. The broker process (``broker``) serves clients by these rules. It may
import ``wire``, ``formats`` and ``model``.
"""
