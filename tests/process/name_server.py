"""A small DNS server: A and AAAA records that a test changes, and silence when it wants that."""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
from typing import Self

TYPES = {1: 4, 28: 6}
"""Of records, with the version of the addresses that they have."""

_HEAD = struct.Struct(">6H")
_RECORD = struct.Struct(">HHHIH")
_POINTER_TO_NAME = 0xC000 + _HEAD.size
_NO_SUCH_NAME = 3


class NameServer:
    """At port 53 of the loopback, as a context.

    Attributes:
        records: addresses by name; who is not there does not exist.
        is_silent: nothing is answered.
        asked: names of all questions so far.
    """

    def __init__(self, **records: list[str]) -> None:
        """Names of one label, each below ``test``."""
        self.records = {f"{name}.test": addresses for name, addresses in records.items()}
        self.is_silent = False
        self.asked: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Who answers nothing ends with an empty question.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", ("127.0.0.1", 53))
        self._thread.join()
        self._socket.close()

    def set(self, name: str, *addresses: str) -> None:
        """``name`` below ``test`` stands for these from now on; for none: it does not exist."""
        if addresses:
            self.records[f"{name}.test"] = list(addresses)
        else:
            self.records.pop(f"{name}.test", None)

    def _run(self) -> None:
        while True:
            question, sender = self._socket.recvfrom(512)
            if not question:
                return
            name, kind, end = _question(question)
            self.asked.append(name)
            if not self.is_silent:
                self._socket.sendto(self._answer(question[:end], name, kind), sender)

    def _answer(self, question: bytes, name: str, kind: int) -> bytes:
        addresses = self.records.get(name)
        found = [
            ipaddress.ip_address(one).packed
            for one in addresses or ()
            if ipaddress.ip_address(one).version == TYPES.get(kind)
        ]
        flags = 0x8180 | (_NO_SUCH_NAME if addresses is None else 0)
        head = _HEAD.pack(_HEAD.unpack_from(question)[0], flags, 1, len(found), 0, 0)
        records = (
            _RECORD.pack(_POINTER_TO_NAME, kind, 1, 1, len(address)) + address for address in found
        )
        return head + question[_HEAD.size :] + b"".join(records)


def _question(message: bytes) -> tuple[str, int, int]:
    """Name and type of the first question, and where it ends."""
    labels, at = [], _HEAD.size
    while size := message[at]:
        labels.append(message[at + 1 : at + 1 + size].decode())
        at += 1 + size
    (kind,) = struct.unpack_from(">H", message, at + 1)
    return ".".join(labels).lower(), kind, at + 5
