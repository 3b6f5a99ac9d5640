"""RocketMQ 5's gRPC clients: a process of its own, which asks the node as a client of it.

Begin with ``service.py``, the calls, and ``door.py``, the connections.
"""
