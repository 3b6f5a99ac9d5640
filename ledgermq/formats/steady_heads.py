"""Layouts of what a steady leader and its followers say to one another, each in one piece.

An append of one run with no membership among its entries, a heartbeat, and a reply without a tail;
their fields are those of ``raft.message_codec``.
"""

from __future__ import annotations

from struct import Struct

ONE_RUN = Struct("<BB6xqqqqqI4xqqI4x")
HEARTBEAT = Struct("<BB6xqqqqqI4xI4x")
REPLY = Struct("<BB6xqqqqB7x")
