"""First bytes of a connection: which protocol the other side speaks, where it is not the expected
one."""

from __future__ import annotations

from enum import Enum

FIRST_BYTES_MAX = 16
"""More of them is not looked at."""


class Spoken(Enum):
    """A protocol, in the words that its users know it by."""

    ZEROMQ = "ZeroMQ, as LedgerMQ's own clients do"
    HTTP = "HTTP"
    GRPC = "HTTP/2, as gRPC clients of RocketMQ 5 do"
    TLS = "TLS"
    REMOTING = "RocketMQ's remoting protocol"
    UNKNOWN = "another protocol"


_BEGINNINGS = {
    # Four bytes of a greeting of ZMTP's: longer sizes than these come from nobody.
    b"\xff\x00\x00\x00": Spoken.ZEROMQ,
    b"PRI ": Spoken.GRPC,
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC"), Spoken.HTTP),
    # An answer, and that of servers that take what they were sent for HTTP/0.9.
    **dict.fromkeys((b"HTTP", b"<!DO", b"<htm", b"<HTM"), Spoken.HTTP),
    # Records of a handshake, and of an alert.
    **dict.fromkeys((b"\x16\x03", b"\x15\x03"), Spoken.TLS),
}
_SETTINGS = b"\x04\x00\x00\x00\x00\x00"
"""Behind the size of the frame with which a server begins HTTP/2: its type, and stream 0."""

REMOTING_FRAME_MAX = 16 * 1024 * 1024
_HEADER_AT, _JSON, _BINARY = 8, 0, 1


def recognise(first: bytes) -> Spoken:
    """Which protocol a connection is spoken in that begins with ``first``, of either side.

    Args:
        first: four bytes tell most of them; remoting and HTTP/2 answers take nine.
    """
    for begin, spoken in _BEGINNINGS.items():
        if first.startswith(begin):
            return spoken
    if first[3:9] == _SETTINGS:
        return Spoken.GRPC
    if len(first) > _HEADER_AT and int.from_bytes(first[:4], "big") < REMOTING_FRAME_MAX:
        kind, header_size = first[4], int.from_bytes(first[5:8], "big")
        is_json = kind == _JSON and first[_HEADER_AT : _HEADER_AT + 1] == b"{"
        if header_size and (is_json or kind == _BINARY):
            return Spoken.REMOTING
    return Spoken.UNKNOWN
