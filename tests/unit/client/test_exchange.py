"""The short way takes answers as the long way does, or leaves them to it; compiled and plain."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Unpack

import pytest

from ledgermq.client.blocking.send_driver import SendDriver
from ledgermq.client.core.connection import Context
from ledgermq.client.core.link import Link
from ledgermq.client.core.results import SendResult
from ledgermq.client.sending.message_options import (
    BatchOptions,
    MessageOptions,
    named,
    outgoing,
    shared_outgoing,
)
from ledgermq.client.sending.send_future import SendFuture
from ledgermq.client.sending.send_pipeline import ProducerOptions, SendPipeline
from ledgermq.client.sending.sender import RouteTable, Sender
from ledgermq.client.stream_connection import SUFFIX
from ledgermq.formats.kernels import kernel
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import BusyError, LedgerError, MessageIllegalError
from ledgermq.wire.byte_stream import MessageReader, message_head
from ledgermq.wire.header import Kind, decode_header, encode_header
from ledgermq.wire.send_frame import Duplicate, decode_send, encode_sent
from ledgermq.wire.session import (
    LEADER,
    Standing,
    Welcome,
    encode_refused,
    encode_role,
    encode_welcome,
)
from tests.suite.patience import PATIENCE_S

KERNELS = [kernel, kernel.load_plain("ledgermq.formats.kernels._exchange")]
WELCOME = Welcome(
    **{
        **{name: 1 << 20 for name, field in Welcome.__dataclass_fields__.items()},
        **{name: "" for name, field in Welcome.__dataclass_fields__.items() if field.type != "int"},
        "entry_header_size": 48,
        "store_host_size": 8,
        "store_host": "10.1.2.3:10911",
        "position": 0,
        "version": 5,
    }  # type: ignore[arg-type]
)


def message(*parts: bytes) -> bytes:
    return message_head(parts)[0] + b"".join(parts)


def sent(request_id: int, *spans: tuple[int, int, int, int], **fields: Any) -> bytes:
    values = {"term": 3, "store_timestamp": 1_760_000_000_000, "ack": 1} | fields
    return message(encode_sent(request_id, spans=spans or ((0, 1, 4_096, 7),), **values))


ROLE = message(*encode_role(Standing(LEADER, 3, "n0"), 9_000))


def looks_like_it(asked: int) -> list[bytes]:
    """A refusal of something else, whose last bytes come by themselves and are like an answer."""
    false = sent(asked, (0, 1, 666, 6))
    whole = message(encode_header(Kind.REFUSED, asked + 1), b"reason" + false)
    return [whole[: -len(false)], false]


TOGETHER: dict[str, Callable[[list[int]], bytes]] = {
    "all at once": lambda asked: b"".join(map(sent, asked)),
    "but for the last": lambda asked: b"".join(map(sent, asked[:-1])),
    "backwards": lambda asked: b"".join(map(sent, reversed(asked))),
    "one of them twice": lambda asked: b"".join(map(sent, [*asked, asked[0]])),
    "one of nobody among them": lambda asked: b"".join(map(sent, [asked[0], 999, *asked[1:]])),
    "a role among them": lambda asked: sent(asked[0]) + ROLE + b"".join(map(sent, asked[1:])),
    "the last one cut": lambda asked: b"".join(map(sent, asked))[:-9],
    "a refusal behind them": lambda asked: (
        b"".join(map(sent, asked[:-1])) + message(*encode_refused(asked[-1], BusyError("later")))
    ),
}

ANSWERS: dict[str, Callable[[int], list[bytes]]] = {
    "an answer": lambda asked: [sent(asked)],
    "byte by byte": lambda asked: [bytes([one]) for one in sent(asked)],
    "answer to something else before": lambda asked: [sent(asked + 1), sent(asked)],
    "answer to something else beside": lambda asked: [sent(asked + 1) + sent(asked)],
    "the same twice": lambda asked: [sent(asked) * 2],
    "a role before": lambda asked: [ROLE, sent(asked)],
    "a role beside": lambda asked: [ROLE + sent(asked)],
    "a role behind": lambda asked: [sent(asked) + ROLE],
    "half of the next one behind": lambda asked: [sent(asked) + ROLE[:20]],
    "a duplicate": lambda asked: [sent(asked, duplicates=[Duplicate(0, 2, 1_759, b"T")])],
    "two spans": lambda asked: [sent(asked, (0, 1, 4_096, 7), (1, 1, 8_192, 8))],
    "no span": lambda asked: [
        message(encode_sent(asked, term=1, store_timestamp=1, ack=1, spans=()))
    ],
    "a span of two": lambda asked: [sent(asked, (0, 2, 4_096, 7))],
    "a span of others": lambda asked: [sent(asked, (1, 1, 4_096, 7))],
    "an acknowledgement that is none": lambda asked: [sent(asked, ack=3)],
    "the rest of another one that looks like it": lambda asked: [
        *looks_like_it(asked),
        sent(asked),
    ],
    "refused for good": lambda asked: [message(*encode_refused(asked, MessageIllegalError("no")))],
    "refused for now": lambda asked: [message(*encode_refused(asked, BusyError("later")))],
    "no message": lambda _asked: [b"\xff" * 72],
    "of the size of an answer": lambda _asked: [b"\x40" + bytes(71)],
    "the end": lambda _asked: [b""],
    "the end in the middle": lambda asked: [sent(asked)[:40], b""],
}


class Side:
    """A producer's parts without threads, and the writer that a test plays."""

    def __init__(self, folder: Path, exchange: type, *, is_short: bool) -> None:
        folder.mkdir()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "produce") + SUFFIX)
        self.listener.listen()
        self.is_short = is_short
        self.reader = MessageReader(1 << 20)
        context: Context = Context.instance()
        self.link = Link(context, f"ipc://{folder}/produce", client="c", is_writers=True)
        self.pipeline = SendPipeline(self.link, ProducerOptions(compress_above=None))
        self.pipeline.advance(1.0)
        self.writer, _ = self.listener.accept()
        hello = self.read()
        assert decode_header(hello[0]).kind is Kind.HELLO
        self.give(message(*encode_welcome(decode_header(hello[0]).request_id, WELCOME)))
        self.turn()
        routes = RouteTable()
        routes.know("T", 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ledgermq.client.sending.sender.Exchange", exchange)
            self.sender = Sender(self.pipeline, Nobody(), born_host=("10.0.0.1", 1))
            self.exchange = self.sender.exchange(routes)
            with patch.context() as threadless:
                threadless.setattr(threading.Thread, "start", lambda _thread: None)
                self.driver = SendDriver(self.pipeline, name="nobody runs it")
            self.waiting = self.sender.exchange(routes, self.driver)
        self.outcomes: list[SendFuture[Any]] = []

    def put(self) -> int:
        """Send a message; the id of its request."""
        form = self.pipeline.form
        assert form is not None
        if not self.exchange.put("T", b"body", None, self.outcomes.append):
            # The first one of a queue.
            assert self.exchange.put("T", b"body", None, self.outcomes.append)
        return decode_header(self.read()[0]).request_id

    def put_long(self, body: bytes, **options: Unpack[MessageOptions]) -> None:
        """Send a message as one with options is sent; it waits for others if any are under way."""
        choice, whole = outgoing("T", body, **options)
        now = time.monotonic()
        callback = self.outcomes.append
        self.sender.put_one(choice, whole, queues=1, now=now, callback=callback)

    def put_batch(self, bodies: list[bytes], **options: Unpack[BatchOptions]) -> None:
        """Send a batch, by the way that is looked at; the id of its request."""
        callback: Callable[[SendFuture[Any]], object] = self.outcomes.append
        if not self.is_short or not self.exchange.put_batch("T", bodies, named(options), callback):
            choice, shared = shared_outgoing("T", bodies, "send_batch", **options)
            now = time.monotonic()
            self.sender.put_batch(choice, bodies, shared, queues=1, now=now, callback=callback)
            self.pipeline.advance(now)

    def read(self) -> list[bytes]:
        while not self.reader.messages:
            self.reader.feed(self.writer.recv(1 << 16))
        return self.reader.messages.popleft()

    def give(self, content: bytes) -> None:
        """Have ``content`` come to the client; nothing: the end."""
        if content:
            self.writer.sendall(content)
        else:
            self.writer.close()
        (descriptor,) = self.link.descriptors
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(PATIENCE_S * 1_000)

    def turn(self) -> None:
        """As a loop does when something has come."""
        has_taken = self.is_short and self.pipeline.in_flight and self.exchange.take()
        if not has_taken or self.pipeline.unanswered_bytes:
            self.pipeline.advance(time.monotonic())
        futures, self.pipeline.callbacks = self.pipeline.callbacks, []
        for future in futures:
            assert future.callback is not None
            future.callback(future)  # type: ignore[arg-type]

    def state(self) -> dict[str, object]:
        """All that tells of what has come, and is not another one at the other side."""
        found = {
            name: value
            for name, value in vars(self.pipeline).items()
            if isinstance(value, bool | int)
        }
        link, outcomes = self.link, []
        for future in self.outcomes:
            try:
                one = future.result()
            except LedgerError as error:
                outcomes.append(repr(error))
            else:
                results = [one] if isinstance(one, SendResult) else list(one)
                outcomes += [repr(each).replace(each.unique_id, "id") for each in results]
        return found | {
            "in flight": list(self.pipeline._in_flight),
            "ready": len(self.pipeline._ready),
            "refused": len(self.pipeline._refused),
            "position": link.position,
            "lost": link.lost_count,
            "stands": link.welcome is not None,
            "outcomes": outcomes,
        }

    def close(self) -> None:
        self.link.close()
        self.writer.close()
        self.listener.close()


class Nobody:
    """Nobody waits for these."""

    def wait_for(self, future: SendFuture[object], timeout: float | None) -> None:
        raise AssertionError("waited for a result")


@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_an_answer_alone_is_taken_on_the_short_way(tmp_path: Path, module: ModuleType) -> None:
    side = Side(tmp_path / "x", module.Exchange, is_short=True)
    request_id = side.put()

    assert not side.exchange.take()
    side.give(sent(request_id))
    assert side.exchange.take()
    assert (side.pipeline.in_flight, side.pipeline.unanswered_bytes) == (0, 0)
    assert not side.exchange.take()
    side.close()


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_whatever_is_answered_both_ways_come_to_the_same(
    tmp_path: Path, module: ModuleType, name: str
) -> None:
    states = []
    for is_short in (True, False):
        side = Side(tmp_path / str(is_short), module.Exchange, is_short=is_short)
        for content in ANSWERS[name](side.put()):
            side.give(content)
            side.turn()
        states.append(side.state())
        side.close()

    assert states[0] == states[1]


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_answers_to_several_frames_come_to_the_same(
    tmp_path: Path, module: ModuleType, name: str
) -> None:
    states = []
    for is_short in (True, False):
        side = Side(tmp_path / str(is_short), module.Exchange, is_short=is_short)
        asked = [side.put()]
        for number in range(4):
            side.put_batch([b"%d" % number])
            asked.append(decode_header(side.read()[0]).request_id)
        side.give(TOGETHER[name](asked))
        side.turn()
        states.append(side.state())
        side.close()

    assert states[0] == states[1]


@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_what_the_connection_has_no_room_for_leaves_later(
    tmp_path: Path, module: ModuleType
) -> None:
    side = Side(tmp_path / "x", module.Exchange, is_short=True)
    side.give(sent(side.put()))
    side.turn()
    stream = side.link.stream
    assert stream is not None
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)

    assert side.exchange.put("T", bytes(1_000_000), None, side.outcomes.append)
    assert stream.unsent
    while stream.unsent:
        side.reader.feed(side.writer.recv(1 << 16))
        side.turn()
    head, payload = side.read()
    side.give(sent(decode_header(head).request_id))
    side.turn()

    assert len(payload) > 1_000_000
    assert len(side.outcomes) == 2
    side.close()


@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_what_a_gone_writer_did_not_take_is_kept_for_the_next_one(
    tmp_path: Path, module: ModuleType
) -> None:
    side = Side(tmp_path / "x", module.Exchange, is_short=True)
    side.give(sent(side.put()))
    side.turn()
    side.writer.close()

    assert side.exchange.put("T", b"body", None, side.outcomes.append)
    assert (side.pipeline.in_flight, len(side.pipeline._ready)) == (0, 1)
    side.turn()
    assert side.link.welcome is None
    (frame,) = side.pipeline._ready
    assert (frame.attempts, frame.may_be_stored) == (0, False)
    side.close()


@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_what_waits_for_an_answer_goes_in_one_frame_either_way(
    tmp_path: Path, module: ModuleType
) -> None:
    bodies = [b"%d" % number * (1 + 900 * number) for number in range(9)]
    frames, states = [], []
    for is_short in (True, False):
        side = Side(tmp_path / str(is_short), module.Exchange, is_short=is_short)
        first = side.put()
        side.put_long(bodies[0])
        gathered = 0
        for body in bodies[1:]:
            if is_short and side.exchange.put("T", body, None, side.outcomes.append):
                gathered += 1
            else:
                side.put_long(body)
        assert gathered == (len(bodies) - 1 if is_short else 0)
        side.give(sent(first))
        side.turn()
        head, payload = side.read()
        frame = decode_send(head)
        at, records = 0, []
        for size in frame.sizes:
            record = decode_message(payload[at + 48 : at + size])
            records.append((size, record.topic, record.queue_id, record.body, record.flag))
            at += size
        assert at == len(payload)
        frames.append((frame.runs, frame.payload_size, records))
        side.give(sent(frame.request_id, (0, 4, 1_000, 10), (4, 5, 70_000, 14)))
        side.turn()
        states.append(side.state())
        side.close()

    assert frames[0] == frames[1]
    assert [record[3] for record in frames[0][2]] == bodies
    assert states[0] == states[1]


NAMED: list[BatchOptions] = [
    {},
    {"tag": "TagA"},
    {"tag": None, "keys": ()},
    {"keys": ["order-1", "ann"]},
    {"keys": "order-1"},
    {"tag": "päckchen", "keys": ("x" * 9_000,)},
]


@pytest.mark.parametrize("options", NAMED)
@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_messages_with_names_are_the_same_either_way(
    tmp_path: Path, module: ModuleType, options: MessageOptions
) -> None:
    stored = []
    for is_short in (True, False):
        side = Side(tmp_path / str(is_short), module.Exchange, is_short=is_short)
        side.give(sent(side.put()))
        side.turn()
        for body in (b"by itself", b"gathered", b"gathered, too"):
            if is_short and body != b"gathered":
                assert side.exchange.put("T", body, named(options), side.outcomes.append)
            else:
                side.put_long(body, **options)
                side.pipeline.advance(time.monotonic())
        heads = [side.read()]
        side.give(sent(decode_header(heads[0][0]).request_id))
        side.turn()
        while side.pipeline.in_flight:
            heads.append(side.read())
            request_id = decode_header(heads[-1][0]).request_id
            records = len(decode_send(heads[-1][0]).sizes)
            side.give(sent(request_id, (0, records, 8_192, 8)))
            side.turn()
        records_of: list[object] = []
        for head, payload in heads:
            at = 0
            for size in decode_send(head).sizes:
                record = decode_message(payload[at + 48 : at + size])
                told = record.parsed_properties()
                assert told.pop("UNIQ_KEY")
                records_of.append((size, record.body, told))
                at += size
        stored.append(records_of)
        assert len(side.outcomes) == 4
        side.close()

    assert stored[0] == stored[1]
    assert [record[1] for record in stored[0]] == [b"by itself", b"gathered", b"gathered, too"]


WRONGLY_NAMED: list[MessageOptions] = [
    {"tag": " TagA"},
    {"tag": 7},  # type: ignore[typeddict-item]
    {"tag": "a\x01b"},
    {"tag": ""},
    {"keys": ["a b"]},
    {"keys": [""]},
    {"keys": 7},  # type: ignore[typeddict-item]
    {"keys": [7]},  # type: ignore[list-item]
    {"keys": ["x" * 40_000]},
]


@pytest.mark.parametrize("options", WRONGLY_NAMED)
@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_wrong_names_are_refused_for_the_same_either_way(
    tmp_path: Path, module: ModuleType, options: MessageOptions
) -> None:
    side = Side(tmp_path / "x", module.Exchange, is_short=True)
    side.give(sent(side.put()))
    side.turn()
    with pytest.raises(MessageIllegalError) as by_long:
        side.put_long(b"body", **options)
    with pytest.raises(MessageIllegalError) as by_short:
        side.exchange.put("T", b"body", named(options), side.outcomes.append)

    assert str(by_short.value) == str(by_long.value)
    assert (side.pipeline.in_flight, side.pipeline.unanswered_bytes) == (0, 0)
    side.close()


@pytest.mark.parametrize("options", NAMED)
@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_batches_go_in_frames_of_their_own_either_way(
    tmp_path: Path, module: ModuleType, options: BatchOptions
) -> None:
    batches = [[b"%d" % number * size for size in range(1, 6)] for number in range(5)]
    frames, states = [], []
    for is_short in (True, False):
        side = Side(tmp_path / str(is_short), module.Exchange, is_short=is_short)
        asked = [side.put()]
        told = side.pipeline.in_flight
        for bodies in batches:
            side.put_batch(bodies, **options)
            told += 1
            assert side.pipeline.in_flight == told
        for bodies in batches:
            head, payload = side.read()
            frame = decode_send(head)
            assert crc32(payload, crc32(frame.tables, 0)) == frame.checksum
            at, records, names = 0, [], []
            for size in frame.sizes:
                record = decode_message(payload[at + 48 : at + size])
                records.append(record.body)
                names.append({**record.parsed_properties(), "UNIQ_KEY": ""})
                at += size
            assert (at, records) == (len(payload), bodies)
            frames.append((frame.runs, list(frame.sizes), names))
            asked.append(frame.request_id)
        side.give(
            b"".join(
                sent(request_id, (0, 5 if number else 1, 1_000 * number, 10 * number))
                for number, request_id in enumerate(asked)
            )
        )
        side.turn()
        states.append(side.state())
        side.close()

    assert frames[:5] == frames[5:]
    assert states[0] == states[1]


@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_batches_that_are_not_as_most_go_the_long_way(tmp_path: Path, module: ModuleType) -> None:
    side = Side(tmp_path / "x", module.Exchange, is_short=True)
    side.put()
    put = side.exchange.put_batch
    for bodies in ([], [b"a", bytearray(b"b")], [bytes(1 << 20)], [b"a"] * ((1 << 20) + 1)):
        assert not put("T", bodies, None, side.outcomes.append)
    assert not put("unknown", [b"a"], None, side.outcomes.append)
    while put("T", [b"a"], None, side.outcomes.append):
        assert side.pipeline.in_flight <= side.pipeline.options.max_in_flight
    assert side.pipeline.in_flight == side.pipeline.options.max_in_flight
    side.close()


@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_a_frame_that_is_full_takes_no_more(tmp_path: Path, module: ModuleType) -> None:
    side = Side(tmp_path / "x", module.Exchange, is_short=True)
    side.put()
    side.put_long(b"first")
    size = side.pipeline.options.batch_bytes // 4
    taken = 0
    while side.exchange.put("T", bytes(size), None, side.outcomes.append):
        taken += 1

    assert taken == 3
    assert side.pipeline.only_gathers
    # The window has room for none: the long way waits for it.
    side.pipeline.unanswered_bytes += side.pipeline.options.window_bytes
    assert not side.exchange.put("T", b"small", None, side.outcomes.append)
    side.pipeline.unanswered_bytes -= side.pipeline.options.window_bytes
    assert side.exchange.put("T", b"small", None, side.outcomes.append)
    side.pipeline.flush()
    assert not side.exchange.put("T", b"behind a flush", None, side.outcomes.append)
    side.close()


@pytest.mark.parametrize("module", KERNELS, ids=["loaded", "plain"])
def test_what_was_left_to_the_long_way_is_still_told_to_it_though_others_gather(
    tmp_path: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = Side(tmp_path / "x", module.Exchange, is_short=True)
    side.give(sent(side.put()))
    side.turn()
    future = side.waiting.send("T", b"body", None)
    side.put_long(b"gathered")
    told: list[bool] = []
    monkeypatch.setattr(
        side.driver, "wait_for", lambda *_arguments: told.append(side.driver._has_changed)
    )
    stream = side.link.stream
    assert future is not None and stream is not None and side.pipeline.only_gathers

    stream.came = ROLE[:10]
    side.driver._has_changed = True
    side.waiting.wait_for(future, PATIENCE_S)
    assert told == [True]
    side.close()
