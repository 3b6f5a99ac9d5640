"""Keys: CURVE keys of clients and peers, the keys of sealed secrets, first access.

Begin with ``key_guard.py`` for clients, ``peer_keys.py`` for members.
"""
