"""Host codec: the address of a client or of a broker inside a message and a message id.

Layout, big-endian (RocketMQ ``MessageExt.socketAddress2ByteBuffer``):

    offset  size     field  unit
    0       4 or 16  ip     IPv4 or IPv6 address
    4 / 16  4        port   0 to 65535

Which of the two it is stands elsewhere: in the message's sysFlag, in the length of the id.
"""

from __future__ import annotations

from functools import lru_cache
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from struct import Struct

from ledgermq.model.errors import CorruptLogError, MessageIllegalError

Host = tuple[str, int]
"""Address as text without a scope, and port."""

HOST_V4_SIZE = 8
HOST_V6_SIZE = 20
PORT_MAX = 65_535
UNPRIVILEGED_PORT_MIN = 1_024

NO_HOST: Host = ("0.0.0.0", 0)  # noqa: S104 - a value on disk, never bound

_PORT = Struct(">I")
_MAPPED = "::ffff:"


def is_v6(host: Host) -> bool:
    """Whether ``host`` takes 20 bytes."""
    return ":" in host[0]


def plain_address(address: str) -> str:
    """An address as the kernel tells it, one of IPv4 as what it is.

    A socket that listens for IPv6 and IPv4 has ``::ffff:10.0.0.7`` for who came from 10.0.0.7.
    """
    return address.removeprefix(_MAPPED) if "." in address else address


@lru_cache(maxsize=4_096)
def encode_host(host: Host) -> bytes:
    """The 8 or 20 bytes of ``host``.

    Raises:
        MessageIllegalError: not an IP address, or not a port.
    """
    address, port = host
    if not 0 <= port <= PORT_MAX:
        raise MessageIllegalError("port outside its range", port=port, limit=PORT_MAX)
    try:
        packed = inet_pton(AF_INET6 if is_v6(host) else AF_INET, address)
    except (OSError, ValueError) as error:  # ValueError: a zero byte or a lone surrogate
        raise MessageIllegalError("not an IP address", address=address) from error
    return packed + _PORT.pack(port)


@lru_cache(maxsize=4_096)
def decode_host(data: bytes) -> Host:
    """The host in ``data``, which has 8 or 20 bytes.

    Raises:
        CorruptLogError: the port is outside its range; Java refuses it too.
    """
    assert len(data) in (HOST_V4_SIZE, HOST_V6_SIZE), len(data)
    (port,) = _PORT.unpack_from(data, len(data) - 4)
    if port > PORT_MAX:
        raise CorruptLogError("port outside its range", port=port, limit=PORT_MAX)
    family = AF_INET if len(data) == HOST_V4_SIZE else AF_INET6
    return inet_ntop(family, data[:-4]), port


@lru_cache(maxsize=16)
def parse_host(text: str) -> Host | None:
    """Address and port of ``ip:port`` or ``[ip]:port``; ``None`` when it is neither."""
    address, _, port = text.rpartition(":")
    if not port.isdecimal():
        return None
    host = address.strip("[]"), int(port)
    try:
        encode_host(host)
    except MessageIllegalError:
        return None
    return host
