"""Peers: sockets, identities, admission to the group, changes of its members.

Begin with ``peer_group.py``.
"""
