"""A client that speaks the consume protocol byte by byte: tests can also speak it wrongly."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import finalize

import zmq

from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.pull_frame import Pull, Pulled, PullStatus, decode_pulled, encode_pull
from ledgermq.wire.session import (
    Refusal,
    Standing,
    Welcome,
    decode_refused,
    decode_role,
    decode_welcome,
    encode_call,
    encode_hello,
)
from tests.process.raw_producer import end_context
from tests.suite.patience import PATIENCE_S

ANSWER_MS = round(PATIENCE_S * 1_000)


class PullAnswer(NamedTuple):
    """A PULLED, and the records that it names."""

    pulled: Pulled
    records: list[bytes]

    @property
    def status(self) -> PullStatus:
        return self.pulled.status


class RawConsumer:
    """One connection to a broker; every wait is bounded."""

    _ids = itertools.count(1)

    def __init__(
        self, runtime_dir: Path, *, hello: bool = True, endpoint: str = "", queued_max: int = 0
    ) -> None:
        self.told: list[Standing] = []
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] = self.context.socket(zmq.DEALER)
        # A context that is collected with an open socket waits for it for ever: a test that fails
        # leaves both, and another one would hang where the collector comes.
        finalize(self, end_context, self.context, self.socket, os.getpid())
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 10)
        if queued_max:
            self.socket.setsockopt(zmq.RCVHWM, queued_max)
        self.socket.connect(endpoint or f"ipc://{runtime_dir}/consume")
        self.welcome: Welcome | None = None
        if hello:
            self.welcome = self.hello()

    def hello(self) -> Welcome:
        self.socket.send_multipart(encode_hello(0, client="test", library="raw"))
        parts = self.receive()
        assert decode_header(parts[0]).kind is Kind.WELCOME, parts
        return decode_welcome(parts[1])

    def receive(self, timeout_ms: int = ANSWER_MS) -> list[bytes]:
        """The next message that is not a ROLE; what those tell is noted in ``told``."""
        while self.socket.poll(timeout_ms):
            parts = self.socket.recv_multipart()
            if decode_header(parts[0]).kind is not Kind.ROLE:
                return parts
            self.told.append(decode_role(parts[1]))
        raise TimeoutError("no answer from the broker")

    def refusal(self, timeout_ms: int = ANSWER_MS) -> Refusal:
        parts = self.receive(timeout_ms)
        assert decode_header(parts[0]).kind is Kind.REFUSED, parts
        return decode_refused(parts[1])

    def send_call(self, verb: str, **arguments: object) -> int:
        request_id = next(self._ids)
        self.socket.send_multipart(encode_call(request_id, verb, **arguments))
        return request_id

    def call(self, verb: str, **arguments: object) -> Any:
        """The result, or the refusal."""
        request_id = self.send_call(verb, **arguments)
        return self.result(request_id)

    def result(self, request_id: int) -> Any:
        parts = self.receive()
        header = decode_header(parts[0])
        assert header.request_id == request_id
        if header.kind is Kind.REFUSED:
            return decode_refused(parts[1])
        assert header.kind is Kind.RESULT, parts
        return json.loads(parts[1])

    def send_pull(
        self,
        topic: str,
        queue_id: int = 0,
        offset: int = 0,
        *,
        messages: int = 32,
        size: int = 1 << 20,
        hold_ms: int = 0,
        tag_hashes: Sequence[int] = (),
    ) -> int:
        request_id = next(self._ids)
        pull = Pull(request_id, topic, queue_id, offset, messages, size, hold_ms, tuple(tag_hashes))
        self.socket.send(encode_pull(pull))
        return request_id

    def pulled(self, timeout_ms: int = ANSWER_MS) -> PullAnswer:
        return self.answered(self.receive(timeout_ms))

    def answered(self, parts: list[bytes]) -> PullAnswer:
        """A PULLED, as it was received."""
        assert decode_header(parts[0]).kind is Kind.PULLED, parts
        pulled = decode_pulled(parts[0], records_size=len(parts[1]))
        ends = map(sum, zip(pulled.starts, pulled.sizes, strict=True))
        places = zip(pulled.starts, ends, strict=True)
        return PullAnswer(pulled, [parts[1][start:end] for start, end in places])

    def pull(self, topic: str, queue_id: int = 0, offset: int = 0, **wishes: Any) -> PullAnswer:
        request_id = self.send_pull(topic, queue_id, offset, **wishes)
        answer = self.pulled()
        assert answer.pulled.request_id == request_id
        return answer

    def close(self) -> None:
        self.context.destroy(0)
