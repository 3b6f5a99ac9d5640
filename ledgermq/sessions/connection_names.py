"""Routing ids of a ROUTER's connections: drawn so that nobody outside may foresee them.

ZeroMQ names a connection that has chosen no name itself by a zero and a number that it counts up,
and takes any name from the wire, one of that form too. If the next number has a connection already,
libzmq 4.3.5 ends the process (``Assertion failed: ok``, ``add_out_pipe``). The first number comes
from C's ``rand``, which is the same in each process that has not set its seed.

So the seed is drawn before a ROUTER is made, and who comes by CURVE is given a name of ours
(``KeyGuard``), which takes the place of what it has chosen. What is left is to meet one of four
billion numbers by chance, with as many connections as one host or account may have, on a socket
without keys.
"""

from __future__ import annotations

import ctypes
import os

OWN_FIRST_BYTE = b"\1"
_SIZE = 16
_PROPERTY = b"Identity"


def draw_seed() -> None:
    """Have the next ROUTER count its connections from a number that nobody knows."""
    ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "big"))


def new_name() -> bytes:
    """A name that no connection has or guesses; ZeroMQ's own begin with a zero."""
    return OWN_FIRST_BYTE + os.urandom(_SIZE - 1)


def metadata_of(name: bytes) -> bytes:
    """What a ZAP answer (RFC 27) says so that a connection has that name."""
    return bytes([len(_PROPERTY)]) + _PROPERTY + len(name).to_bytes(4, "big") + name
