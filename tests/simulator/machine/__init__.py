"""The simulated machine: clock, disk, network, processes, connections.

Begin with ``events.py``, the simulator's time.
"""
