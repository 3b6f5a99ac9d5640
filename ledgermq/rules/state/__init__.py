"""The state machine of the broker's tables: its commands and snapshots.

Begin with ``broker_state.py``.
"""
