"""Simulated producer: sends, looks for the leader, and sends again what was not answered."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import groupby
from random import Random

from ledgermq.formats.dledger_entry import HEADER_SIZE as ENTRY_HEADER_SIZE
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.errors import AttemptUnknownError
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.send_frame import (
    NOT_SENT,
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
    decode_refused,
    decode_role,
    decode_welcome,
    encode_hello,
    role_position,
)
from tests.simulator.checks.checker import Checker, CommittedMessage
from tests.simulator.machine.client_port import SimulatedConnection
from tests.simulator.machine.events import MS, Events
from tests.simulator.node import QUEUES, TOPIC, Node

STORE_HOST_SIZE = 8
PATIENCE_NS = 1_500 * MS
RETRY_NS = 40 * MS
RECORDS_MAX = 6


class SimulatedFrame:
    """Messages of one frame, the same ones however often it is sent.

    Attributes:
        messages: unique id and queue of each.
        first_position: no attempt is stored before it.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.is_retry = False
        self.first_position = NOT_SENT
        records = [bytes(ENTRY_HEADER_SIZE) + encode_message(message) for message in messages]
        self.sizes = [len(record) for record in records]
        self.messages = [(message.unique_id, message.queue_id) for message in messages]
        queues = ((message.topic, message.queue_id) for message in messages)
        self.runs = [
            SendRun(sum(1 for _ in run), queue_id, topic.encode())
            for (topic, queue_id), run in groupby(queues)
        ]
        self.payload = b"".join(records)

    def encode(self, request_id: int, *, is_resumed: bool) -> list[bytes]:
        """The parts of a SEND."""
        tables = encode_tables(array("I", self.sizes).tobytes(), self.runs)
        head = encode_send(
            request_id,
            tables=tables,
            records=len(self.sizes),
            runs=len(self.runs),
            topics_size=sum(len(run.topic) for run in self.runs),
            payload_size=len(self.payload),
            checksum=crc32(self.payload, crc32(tables, 0)),
            entry_header_size=ENTRY_HEADER_SIZE,
            store_host_size=STORE_HOST_SIZE,
            is_retry=self.is_retry,
            is_resumed=is_resumed,
        )
        if self.is_retry:
            head = with_first_position(head, self.payload, self.first_position)
        return [head, self.payload]

    def stored(self, sent: Sent) -> list[CommittedMessage]:
        """Where the answer says that the messages are."""
        found: list[CommittedMessage] = []
        for span in sent.spans:
            position = span.physical_offset
            for row in range(span.records):
                unique_id, queue_id = self.messages[span.first + row]
                found.append(
                    CommittedMessage(unique_id, queue_id, span.queue_offset + row, position)
                )
                position += self.sizes[span.first + row]
        return found


def plain_messages(name: str, number: int, random: Random) -> list[Message]:
    """Messages that everybody may see at once."""
    counts = [random.randint(1, RECORDS_MAX) for _ in range(random.choice((1, 1, 2)))]
    queues = random.sample(range(QUEUES), len(counts))
    messages: list[Message] = []
    for count, queue_id in zip(counts, queues, strict=True):
        for _ in range(count):
            unique_id = f"{name}-{number}-{len(messages)}"
            messages.append(
                Message(
                    topic=TOPIC,
                    queue_id=queue_id,
                    body=unique_id.encode() * random.choice((1, 5, 40)),
                    properties=encode_properties({"UNIQ_KEY": unique_id}),
                )
            )
    return messages


def is_lost(refusal: Refusal) -> bool:
    """Whether a frame is in the log or not, and nobody can tell any more."""
    return refusal.number == AttemptUnknownError.number


class SimulatedProducer:
    """One frame is under way at a time.

    Attributes:
        make: the messages of the frame with a number; at least one.
        sent: called when a frame is stored, with its number.
        note: looks whether what an answer says is so.
        gives_up: whether a frame that was refused is not sent again.
        think_ns: longest pause between an answer and the next frame.
        is_stopped: sends nothing new.
    """

    def __init__(
        self, name: str, nodes: list[Node], events: Events, random: Random, checker: Checker
    ) -> None:
        self.name = name
        self.think_ns = 20 * MS
        self.make: Callable[[int], Sequence[Message]] = lambda number: plain_messages(
            name, number, random
        )
        self.sent: Callable[[int, list[CommittedMessage]], None] = lambda number, stored: None
        self.note: Callable[[Sent, list[CommittedMessage]], None] = self._note
        self.gives_up: Callable[[Refusal], bool] = is_lost
        self.is_stopped = False
        self.delay_ns = 0
        self._nodes = nodes
        self._events = events
        self._random = random
        self._checker = checker
        self._connection: SimulatedConnection | None = None
        self._target = random.randrange(len(nodes))
        self._numbers = 0
        self._attempt = 0
        self._position = 0
        self._frame: SimulatedFrame | None = None
        self._request = 0
        self._heard_at = 0
        events.after(random.randrange(self.think_ns), self._connect)

    def _connect(self) -> None:
        """A new connection; it is given up when nothing comes for a while."""
        self._attempt += 1
        attempt = self._attempt
        if self._connection is not None:
            self._connection.leave()
            self._connection = None
        self._heard_at = self._events.now
        self._events.after(PATIENCE_NS, lambda: self._lose_patience(attempt))
        node = self._nodes[self._target]
        port = node.port
        if not node.is_on or port is None:
            self._turn_to(None)
            return
        port.delay_ns = self.delay_ns
        identity = f"{self.name}-{attempt}".encode()
        self._connection = SimulatedConnection(
            identity, port, lambda parts: self._take(attempt, parts)
        )
        hello = encode_hello(0, client=self.name, library="sim", instance=self.name)
        self._connection.send(hello)

    def cut_off(self, for_ns: int) -> None:
        """What it has sent arrives; it hears nothing for so long, and then connects anew."""
        self._attempt += 1
        attempt = self._attempt
        if self._connection is not None:
            self._connection.leave()
            self._connection = None
        self._events.after(for_ns, lambda: self._go_on(attempt, self._connect))

    def _lose_patience(self, attempt: int) -> None:
        """Give a connection up on which nothing was heard for long while something is awaited."""
        if attempt != self._attempt or (self.is_stopped and self._frame is None):
            return
        left = self._heard_at + PATIENCE_NS - self._events.now
        if left > 0:
            self._events.after(left, lambda: self._lose_patience(attempt))
        else:
            self._turn_to(None)

    def _turn_to(self, leader: str | None) -> None:
        """Try the node that is said to lead, else any; not at once."""
        self._attempt += 1
        attempt = self._attempt
        names = [str(node.name) for node in self._nodes]
        if leader in names:
            self._target = names.index(leader)
        else:
            self._target = self._random.randrange(len(names))
        wait = self._random.randrange(RETRY_NS)
        self._events.after(wait, lambda: self._go_on(attempt, self._connect))

    def _go_on(self, attempt: int, step: Callable[[], None]) -> None:
        """Do ``step`` unless another attempt was begun meanwhile."""
        if attempt == self._attempt:
            step()

    def _take(self, attempt: int, parts: list[bytes]) -> None:
        if attempt != self._attempt:
            return
        self._heard_at = self._events.now
        header = decode_header(parts[0])
        if header.kind is Kind.WELCOME:
            welcome = decode_welcome(parts[1])
            standing = welcome.standing
            self._note_position(welcome.position)
            if standing.leads:
                self._send()
            else:
                self._turn_to(standing.leader)
        elif header.kind is Kind.ROLE:
            standing = decode_role(parts[1])
            self._note_position(role_position(parts[1]))
            if not standing.leads:
                self._turn_to(standing.leader)
        elif header.kind is Kind.REFUSED:
            if header.request_id == self._request and self.gives_up(decode_refused(parts[1])):
                self._frame = None
                self._think()
            else:
                self._turn_to(None)
        elif header.kind is Kind.SENT and header.request_id == self._request:
            self._answered(decode_sent(parts[0]))

    def _note_position(self, position: int) -> None:
        """What is sent to this node from now on stands behind it."""
        if position != NOT_TOLD:
            self._position = position

    def _send(self) -> None:
        if self._connection is None:
            return
        if self._frame is None:
            if self.is_stopped:
                return
            self._numbers += 1
            self._frame = SimulatedFrame(self.make(self._numbers))
            self._checker.attempted.update(unique_id for unique_id, _ in self._frame.messages)
        frame = self._frame
        self._request += 1
        self._connection.send(frame.encode(self._request, is_resumed=True))
        # Whoever sends again cannot know what became of it.
        frame.is_retry = True
        frame.first_position = min(frame.first_position, self._position)

    def _answered(self, sent: Sent) -> None:
        assert self._frame is not None
        self._position = max(self._position, sent.spans[-1].physical_offset)
        stored = self._frame.stored(sent)
        assert len(stored) == len(self._frame.messages), (sent, self._frame.messages)
        self.note(sent, stored)
        self._frame = None
        self.sent(self._numbers, stored)
        self._think()

    def _note(self, sent: Sent, stored: list[CommittedMessage]) -> None:
        del sent
        for one in stored:
            self._checker.answered(one)

    def _think(self) -> None:
        """The next frame, a bit later."""
        attempt = self._attempt
        wait = self._random.randrange(self.think_ns)
        self._events.after(wait, lambda: self._go_on(attempt, self._send))
