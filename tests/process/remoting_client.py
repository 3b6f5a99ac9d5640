"""A raw client of RocketMQ's protocol: one connection, requests and replies as they are."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import struct
from collections.abc import Mapping

from ledgermq.remoting.codes import Language
from ledgermq.remoting.command import REPLY, Command, HeaderKind, decode_command, encode_command
from ledgermq.remoting.signature import ACCESS_KEY, SIGNATURE, signature
from tests.suite.patience import PATIENCE_S


class RemotingClient:
    """Asks one request after the other, and keeps what the broker sends on its own."""

    def __init__(
        self,
        address: str,
        *,
        kind: HeaderKind = HeaderKind.JSON,
        signs: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        source: str = "",
    ) -> None:
        """Connect.

        Args:
            signs: access key and secret with which requests are signed.
            tls: the connection has TLS by this.
            source: address of this end; any when left out.
        """
        host, _, port = address.rpartition(":")
        self.kind = kind
        self.language = int(Language.PYTHON)
        self.came: list[Command] = []
        self.replies: dict[int, Command] = {}
        self.signs = signs
        self._socket = socket.create_connection(
            (host, int(port)), timeout=PATIENCE_S, source_address=(source, 0) if source else None
        )
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._ids = itertools.count(1)

    @property
    def address(self) -> tuple[str, int]:
        """This end's."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> Command:
        """Send a request, and wait for its reply."""
        return self.reply_to(self.send(code, fields, body))

    def send(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        flag: int = 0,
    ) -> int:
        """Send a request; its number."""
        opaque = next(self._ids)
        texts = {name: str(value) for name, value in (fields or {}).items()}
        if self.signs is not None:
            texts[ACCESS_KEY] = self.signs[0]
            texts[SIGNATURE] = signature(texts, body, self.signs[1])
        command = Command(code, opaque, texts, body, flag, language=self.language, kind=self.kind)
        self._socket.sendall(b"".join(encode_command(command)))
        return opaque

    def send_unescaped(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> int:
        """Send a request whose texts are as they are, as most of RocketMQ's clients write them."""
        opaque = next(self._ids)
        header = json.dumps(
            {"code": code, "opaque": opaque, "extFields": dict(fields)}, ensure_ascii=False
        ).encode()
        self._socket.sendall(struct.pack(">II", 4 + len(header) + len(body), len(header)))
        self._socket.sendall(header + body)
        return opaque

    def answer(
        self, request: Command, code: int = 0, body: bytes = b"", *, remark: str | None = None
    ) -> None:
        """Answer a request of the broker."""
        reply = request.reply(code, body=body, remark=remark)
        self._socket.sendall(b"".join(encode_command(reply)))

    def reply_to(self, opaque: int) -> Command:
        """Wait for the reply to a request."""
        while opaque not in self.replies:
            self._take()
        return self.replies.pop(opaque)

    def next_request(self) -> Command:
        """Wait for what the broker asks or tells on its own."""
        while not self.came:
            self._take()
        return self.came.pop(0)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _take(self) -> None:
        size = int.from_bytes(self._exactly(4), "big")
        command = decode_command(memoryview(self._exactly(size)))
        if command.flag & REPLY:
            self.replies[command.opaque] = command
        else:
            self.came.append(command)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker has closed the connection")
            data += part
        return bytes(data)
