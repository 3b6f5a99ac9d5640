"""Protocols of our own, between clients and nodes and between members, as bytes; no I/O.

Begin with ``header.py`` and ``send_frame.py`` for clients, ``peer_preamble.py`` for members; the
reference is docs/formats/client-protocol.md, and peer-protocol.md beside it. It may import
``formats`` and ``model``.
"""
