"""Shared parts of a node's processes: loop, clock, log lines, settings, keys, client sockets.

Begin with ``ipc/loop.py``, the main loop that runs each worker, and ``environment.py``, all that a
worker reaches of the world; the simulator replaces both. It may import ``rules`` and what is below
that, and sees no single process.
"""
