"""Shared parts of a node's processes: entry and exit, clock, log lines, control socket.

Begin with ``worker_main.py``, the course of each process, and ``environment.py``, all that a worker
reaches of the world; the simulator replaces it. It may import ``sessions``, ``members`` and what is
below them, and sees no single process.
"""
