"""Questions to a master by RocketMQ's remoting protocol: its settings, its tables, how far it is.

One connection, one question at a time, each with a bound of its answer's time and size. Nothing
that is asked changes anything at the master.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from ledgermq.model.config.broker_conf import read_properties
from ledgermq.model.config.host_texts import split_address
from ledgermq.model.errors import ProtocolError, UnreachableError
from ledgermq.remoting.codes import Language, RequestCode, ResponseCode
from ledgermq.remoting.command import Command, decode_command, encode_command
from ledgermq.remoting.fastjson import decode_body
from ledgermq.remoting.signature import ACCESS_KEY, SIGNATURE, signature
from ledgermq.understudy.master_access import CA_OPTION, MasterAccess

ANSWER_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
ANSWER_SIZE_MAX = 256 * 1024 * 1024
"""Largest answer: the table of a million topics."""

_PART = 1 << 20

_TLS_ALERT = 0x1503
"""How a TLS record begins that says that something is none; of OpenSSL 3.5 it is the answer."""


class MasterReach(NamedTuple):
    """Which bytes of its log a master has, and what it is.

    Attributes:
        begin, end: positions of the log's first byte, and of the one behind its last; both 0 where
            there is nothing yet.
        version: what it calls itself, as ``V4_9_4``.
    """

    begin: int
    end: int
    version: str


class MasterQuestions:
    """One connection to the port of a master's clients; to be used by one thread at a time."""

    def __init__(self, address: str, access: MasterAccess) -> None:
        """Connect.

        Args:
            address: host and port.
            access: with TLS or without, signed or not.

        Raises:
            UnreachableError: nobody answers there, or nobody whom an authority has certified.
            ConfigError: not an address.
        """
        self.address = address
        self._access = access
        host, port = split_address(address)
        try:
            self._socket = _connected(host, port, access.tls)
        except OSError as error:
            raise UnreachableError(
                "the master's remoting port is not reached", address=address, reason=str(error)
            ) from error
        self._socket.settimeout(ANSWER_TIMEOUT_S)
        self._opaque = 0

    def settings(self) -> str:
        """The master's settings as text, a row each, as a ``broker.conf`` has them.

        Raises:
            ProtocolError, UnreachableError: as ``ask``.
        """
        return self.ask(RequestCode.GET_BROKER_CONFIG).decode("utf-8", "replace")

    def reach(self) -> MasterReach:
        """Which bytes of its log the master has now.

        Raises:
            ProtocolError, UnreachableError: as ``ask``.
        """
        table = decode_body(self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).get("table")
        if not isinstance(table, dict):
            raise ProtocolError("the master's runtime info has no table", address=self.address)
        begin, end = (
            _position(table, name) for name in ("commitLogMinOffset", "commitLogMaxOffset")
        )
        return MasterReach(begin, end, str(table.get("brokerVersionDesc", "")))

    def record_at(self, position: int) -> bytes:
        """The record that begins at ``position``, as it stands in the log.

        Raises:
            ProtocolError, UnreachableError: as ``ask``.
        """
        return self.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(position)})

    def queue_end(self, topic: str, queue_id: int) -> int:
        """Queue offset of the next message of a queue.

        Raises:
            ProtocolError, UnreachableError: as ``ask``.
        """
        fields = {"topic": topic, "queueId": str(queue_id)}
        return _position(self.fields_of(RequestCode.GET_MAX_OFFSET, fields), "offset")

    def fields_of(self, code: int, fields: Mapping[str, str]) -> Mapping[str, str]:
        """Fields of the answer to one request.

        Raises:
            ProtocolError, UnreachableError: as ``ask``.
        """
        return self._reply(code, fields).fields

    def ask(self, code: int, fields: Mapping[str, str] | None = None) -> bytes:
        """Body of the answer to one request.

        Raises:
            ProtocolError: it is refused, or is no answer; names code and remark.
            UnreachableError: none comes in time, or the connection has ended.
        """
        return bytes(self._reply(code, fields or {}).body)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _reply(self, code: int, fields: Mapping[str, str]) -> Command:
        self._opaque += 1
        command = Command(code, self._opaque, self._signed(fields), language=Language.OTHER)
        try:
            self._socket.sendall(b"".join(encode_command(command)))
            while True:
                reply = decode_command(memoryview(self._frame()))
                # A broker tells its clients things of its own accord.
                if reply.is_reply and reply.opaque == self._opaque:
                    break
        except OSError as error:
            raise UnreachableError(
                "the master does not answer", address=self.address, code=code, reason=str(error)
            ) from error
        if reply.code != ResponseCode.SUCCESS:
            raise ProtocolError(
                "the master refuses a request",
                address=self.address,
                request=code,
                code=reply.code,
                remark=(reply.remark or "")[:300],
            )
        return reply

    def _signed(self, fields: Mapping[str, str]) -> Mapping[str, str]:
        """The fields of a request without a body, with what tells the master who asks."""
        if not self._access.key:
            return fields
        named = {**fields, ACCESS_KEY: self._access.key}
        return {**named, SIGNATURE: signature(named, b"", self._access.secret)}

    def _frame(self) -> bytearray:
        size = int.from_bytes(self._exactly(4), "big")
        if size >> 16 == _TLS_ALERT:
            raise UnreachableError(
                "the master does not answer without TLS", address=self.address, option=CA_OPTION
            )
        if size > ANSWER_SIZE_MAX:
            raise ProtocolError(
                "the master's answer is too large",
                address=self.address,
                size=size,
                limit=ANSWER_SIZE_MAX,
            )
        return self._exactly(size)

    def _exactly(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), _PART))
            if not part:
                raise ConnectionError("the connection was ended")
            data += part
        return data


class MasterSettings:
    """What of a master's settings counts for who follows it."""

    def __init__(self, text: str) -> None:
        """Read them.

        Raises:
            ConfigError: they are not understood.
        """
        self._values = {key: one.value for key, one in read_properties(text).items()}

    def text(self, key: str) -> str:
        """A value; empty where it is not told."""
        return self._values.get(key, "")

    def is_true(self, key: str) -> bool:
        """Whether a switch is on."""
        return self.text(key).strip().lower() == "true"

    def number(self, key: str) -> int | None:
        """A number; None where none is told."""
        text = self.text(key).strip()
        return int(text) if text.isascii() and text.isdigit() else None


def _connected(host: str, port: int, tls: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
    if tls is None:
        return plain
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def _position(table: Mapping[str, object], name: str) -> int:
    """A number of an answer; none below 0, which means that there is nothing."""
    try:
        found = int(str(table.get(name)))
    except ValueError as error:
        raise ProtocolError(
            "the master's answer lacks a number", field=name, value=str(table.get(name))[:64]
        ) from error
    return max(0, found)
