"""The node as a RocketMQ name server, and its registration with others.

Begin with ``route_codes.py``.
"""
