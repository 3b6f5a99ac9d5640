"""A client that speaks the produce protocol byte by byte: tests can also speak it wrongly."""

from __future__ import annotations

import itertools
import os
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import finalize

import zmq

from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.send_frame import (
    SendRun,
    Sent,
    decode_sent,
    encode_send,
    encode_tables,
    with_first_position,
)
from ledgermq.wire.session import (
    NOT_TOLD,
    Refusal,
    Standing,
    Welcome,
    decode_refused,
    decode_role,
    decode_welcome,
    encode_hello,
)
from tests.suite.patience import PATIENCE_S

ANSWER_MS = round(PATIENCE_S * 1_000)


def end_context(
    context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], owner: int
) -> None:
    """Close both at once, with what was not sent; not in a child that was forked of ``owner``."""
    if os.getpid() == owner:
        socket.close(0)
        context.destroy(0)


class RawProducer:
    """One connection to a writer; every wait is bounded. No two connections share an id."""

    _ids = itertools.count(1)

    def __init__(
        self,
        place: Path | str,
        *,
        hello: bool = True,
        instance: str = "",
        identity: bytes = b"",
    ) -> None:
        """Connect to the writer of a runtime directory, or at an address of ZeroMQ's."""
        self.instance = instance
        self.told: list[Standing] = []
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] = self.context.socket(zmq.DEALER)
        # A context that is collected with an open socket waits for it for ever: a test that fails
        # leaves both, and another one would hang where the collector comes.
        finalize(self, end_context, self.context, self.socket, os.getpid())
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 10)
        if identity:
            self.socket.setsockopt(zmq.ROUTING_ID, identity)
        self.socket.connect(place if isinstance(place, str) else f"ipc://{place}/produce")
        self.welcome: Welcome | None = None
        if hello:
            self.welcome = self.hello()

    def ask(self, timeout_ms: int = ANSWER_MS) -> list[bytes]:
        """Say HELLO; the answer, or one that was due before."""
        self.socket.send_multipart(
            encode_hello(0, client="test", library="raw", instance=self.instance)
        )
        return self.receive(timeout_ms)

    def hello(self) -> Welcome:
        parts = self.ask()
        assert decode_header(parts[0]).kind is Kind.WELCOME, parts
        return decode_welcome(parts[1])

    def receive(self, timeout_ms: int = ANSWER_MS) -> list[bytes]:
        """The next message that is not a ROLE; what those tell is noted in ``told``."""
        while self.socket.poll(timeout_ms):
            parts = self.socket.recv_multipart()
            if decode_header(parts[0]).kind is not Kind.ROLE:
                return parts
            self.told.append(decode_role(parts[1]))
        raise TimeoutError("no answer from the writer")

    def answer(self, timeout_ms: int = ANSWER_MS) -> Sent | Refusal:
        parts = self.receive(timeout_ms)
        if decode_header(parts[0]).kind is Kind.SENT:
            return decode_sent(parts[0])
        assert decode_header(parts[0]).kind is Kind.REFUSED, parts
        return decode_refused(parts[1])

    def record(
        self,
        body: bytes,
        *,
        topic: str = "orders",
        queue_id: int = 0,
        unique_id: str | None = "",
        properties: Mapping[str, str] | None = None,
        **fields: int,
    ) -> bytes:
        assert self.welcome is not None
        own = {"UNIQ_KEY": unique_id or f"{next(self._ids):032X}", "TAGS": "TagA"}
        if unique_id is None:
            del own["UNIQ_KEY"]
        given = {name: value for name, value in (properties or {}).items() if value}
        message = Message(
            topic=topic,
            queue_id=queue_id,
            body=body,
            # A timer says first when it is due.
            properties=encode_properties({**given, **own, **given}),
            **fields,
        )
        return bytes(self.welcome.entry_header_size) + encode_message(message)

    def frame(
        self,
        records: Sequence[bytes],
        *,
        topic: str = "orders",
        queue_id: int = 0,
        retry: bool = False,
        resumed: bool = True,
        first_position: int = NOT_TOLD,
        runs: Sequence[SendRun] = (),
    ) -> list[bytes]:
        """The parts of a SEND.

        Args:
            runs: of the records; all are of ``topic`` and ``queue_id`` when left out.
        """
        assert self.welcome is not None
        payload = b"".join(records)
        runs = runs or [SendRun(len(records), queue_id, topic.encode())]
        tables = encode_tables(array("I", map(len, records)).tobytes(), runs)
        head = encode_send(
            next(self._ids),
            tables=tables,
            records=len(records),
            runs=len(runs),
            topics_size=sum(len(run.topic) for run in runs),
            payload_size=len(payload),
            checksum=crc32(payload, crc32(tables, 0)),
            entry_header_size=self.welcome.entry_header_size,
            store_host_size=self.welcome.store_host_size,
            is_retry=retry,
            is_resumed=resumed,
        )
        if first_position != NOT_TOLD:
            head = with_first_position(head, payload, first_position)
        return [head, payload]

    def send(self, *bodies: bytes, **where: int) -> Sent | Refusal:
        records = [self.record(body, **where) for body in bodies]
        self.socket.send_multipart(self.frame(records, **where))
        return self.answer()

    def send_one(
        self, body: bytes, *, topic: str, properties: Mapping[str, str], queue_id: int = 0
    ) -> Sent | Refusal:
        record = self.record(body, topic=topic, queue_id=queue_id, properties=properties)
        self.socket.send_multipart(self.frame([record], topic=topic, queue_id=queue_id))
        return self.answer()

    def close(self) -> None:
        self.context.destroy(0)
