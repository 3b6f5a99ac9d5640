"""A node for tests of the client alone: speaks the protocol over real ZeroMQ, keeps all in memory.

It checks what a node checks of a frame, stores it whole or not at all, looks retries up by their
unique ids, and answers in order. A test tells it to refuse, to be silent, or to end connections.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import zmq

from ledgermq.formats.java_hash import java_hash
from ledgermq.formats.records.message import decode_message
from ledgermq.model.errors import (
    LedgerError,
    NotLeaderError,
    ProtocolError,
    StaleGenerationError,
    TopicUnknownError,
)
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.pull_frame import Pull, PullStatus, decode_pull, encode_pulled
from ledgermq.wire.send_frame import SendFrame, SentSpan, decode_send, encode_sent
from ledgermq.wire.session import (
    LEADER,
    Standing,
    Welcome,
    decode_call,
    decode_hello,
    encode_refused,
    encode_result,
    encode_role,
    encode_welcome,
)
from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder

HOLE = 48
STORE_HOST = "10.1.2.3:10911"


class Stored(NamedTuple):
    """One message in memory; ``record`` is without its entry header."""

    record: bytes
    physical_offset: int
    queue_offset: int
    tag: str


class Seen(NamedTuple):
    """One SEND as it came."""

    is_retry: bool
    unique_ids: list[str]
    topic: str
    queue_id: int
    connection: bytes


ALONE = Standing(LEADER, 1, "n0")


class Log:
    """What peers of one group have stored: replication without delay."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[Stored]] = defaultdict(list)
        self.places: dict[str, Stored] = {}
        self.end = 0

    def bodies(self, topic: str = "T") -> list[bytes]:
        """Bodies in the order in which they were stored."""
        rows = [row for (name, _), queue in self.queues.items() for row in queue if name == topic]
        rows.sort(key=lambda row: row.physical_offset)
        return [bytes(decode_message(memoryview(row.record)).body) for row in rows]


class Peer:
    """Two ROUTER sockets and a thread."""

    def __init__(
        self,
        *,
        node: str = "n0",
        log: Log | None = None,
        standing: Standing = ALONE,
        over_tcp: bool = False,
        host: str = "127.0.0.1",
        ports: tuple[str, str] = ("*", "*"),
        **welcome: Any,
    ) -> None:
        self.node = node
        self.standing = standing
        self.log = log or Log()
        produce, consume = ports
        self._tcp = {"produce": f"tcp://{host}:{produce}", "consume": f"tcp://{host}:{consume}"}
        self._over_tcp = over_tcp
        self.directory = Path(tempfile.mkdtemp(prefix="peer-", dir=short_folder()))
        self.address = f"ipc://{self.directory}"
        self.topics = {"T": 4}
        self.cluster: dict[str, object] = {"group": "b", "cluster": "", "number": 0, "groups": []}
        self.unknown_verbs: tuple[str, ...] = ()
        self.topic_rows: dict[str, dict[str, object]] = {}
        self.commits: dict[tuple[str, str], dict[str, int]] = {}
        self.seen: list[Seen] = []
        self.refused: list[LedgerError] = []
        self.refusals: list[LedgerError | None] = []
        self.hellos = 0
        self.greeting_refusals: list[LedgerError] = []
        self.pulls: list[Pull] = []
        self.suggested = ""
        self.silent = False
        self.greeted = threading.Event()
        self.before_pull: Callable[[Pull], None] = lambda _pull: None
        self.generation = 1
        self._held: list[tuple[bytes, Pull]] = []
        self._welcome = welcome
        self._sessions: dict[bytes, zmq.Socket[bytes]] = {}
        self._begun: dict[bytes, int] = {}
        self._terms_ended = 0
        self._last_led = standing.term
        self._left: list[zmq.Socket[bytes]] = []
        self._tasks: list[Callable[[], None]] = []
        self._context = zmq.Context()
        self._wake = self._context.socket(zmq.PULL)
        self._wake.bind("inproc://wake")
        self._bind()
        self._is_running = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def queues(self) -> dict[tuple[str, int], list[Stored]]:
        """The queues of all topics, by topic and queue id."""
        return self.log.queues

    def do(self, task: Callable[[], None]) -> None:
        """Run ``task`` in the node's thread, and return when it is done."""
        done = threading.Event()

        def run() -> None:
            task()
            done.set()

        self._tasks.append(run)
        with self._context.socket(zmq.PUSH) as bell:
            bell.connect("inproc://wake")
            bell.send(b"")
            assert done.wait(PATIENCE_S)

    def restart(self) -> None:
        """End all connections, forget all sessions; what is stored stays."""
        self.do(self._restart)

    def forget_sessions(self) -> None:
        """Keep the connections, and know none of them."""
        self.do(self._sessions.clear)

    def leave_connections(self) -> None:
        """Take new connections only; nobody reads what comes over the old ones, nor ends them."""

        def leave() -> None:
            self._sessions.clear()
            self._held.clear()
            self._left += [self._produce, self._consume]
            self._bind()

        self.do(leave)

    def tell(self, role: str, term: int, leader: str) -> None:
        """Be something else in the group, and tell those who have a session."""
        standing = Standing(role, term, leader)

        def tell() -> None:
            before, self.standing = self.standing, standing
            for identity, socket in self._sessions.items():
                socket.send_multipart([identity, *encode_role(standing)])
            self._end_sessions(before, standing)

        self.do(tell)

    def _end_sessions(self, before: Standing, standing: Standing) -> None:
        """A node that leads again takes nothing that was sent to it before another one has led."""
        if before.leads and (not standing.leads or standing.term != before.term):
            self._last_led = before.term
            self._terms_ended += 1
        if standing.leads and standing.term > self._last_led + 1:
            for identity, ended in list(self._begun.items()):
                if ended < self._terms_ended:
                    self._sessions.pop(identity, None)

    def stop_listening(self) -> None:
        """End all connections, and take no new ones until ``restart``."""
        self.do(self._unbind)

    def close(self) -> None:
        def stop() -> None:
            self._is_running = False

        try:
            self.do(stop)
            self._thread.join()
        finally:
            # Also those of a thread that died: a context that is collected with an open socket
            # waits for it for ever.
            if not self._thread.is_alive():
                self._context.destroy(linger=0)
            shutil.rmtree(self.directory)

    def stored(self, topic: str = "T") -> list[bytes]:
        """Bodies in the order in which they were stored."""
        return self.log.bodies(topic)

    def _bind(self) -> None:
        self._produce = self._context.socket(zmq.ROUTER)
        self._consume = self._context.socket(zmq.ROUTER)
        for name, socket in (("produce", self._produce), ("consume", self._consume)):
            socket.bind(f"ipc://{self.directory}/{name}")
            if self._over_tcp:
                socket.setsockopt(zmq.IPV6, int("[" in self._tcp[name]))
                _bind_again(socket, self._tcp[name])
                # The same port after a restart.
                self._tcp[name] = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        if self._over_tcp:
            self.address = self._tcp["consume"]
            self._welcome["produce"] = self._tcp["produce"]

    def _unbind(self) -> None:
        self._produce.close(0)
        self._consume.close(0)
        self._sessions.clear()
        self._held.clear()

    def _restart(self) -> None:
        self._unbind()
        self.generation += 1
        self._bind()

    def _run(self) -> None:
        while self._is_running:
            sockets = [one for one in (self._wake, self._produce, self._consume) if not one.closed]
            ready, _, _ = zmq.select(sockets, [], [])
            for socket in ready:
                if socket is self._wake:
                    self._wake.recv()
                    while self._tasks:
                        self._tasks.pop(0)()
                    break
                self._take(socket, socket.recv_multipart())

    def _take(self, socket: zmq.Socket[bytes], parts: list[bytes]) -> None:
        identity, head, *rest = parts
        header = decode_header(head)
        try:
            if header.kind is Kind.HELLO:
                decode_hello(rest[0])
                self.hellos += 1
                self.greeted.set()
                if self.greeting_refusals:
                    raise self.greeting_refusals.pop(0)
                self._sessions[identity] = socket
                self._begun.setdefault(identity, self._terms_ended)
                answer = encode_welcome(header.request_id, self._greeting())
            elif identity not in self._sessions:
                raise StaleGenerationError("no session")
            elif header.kind is Kind.SEND:
                answer = self._store(identity, decode_send(head), rest[0])
            elif header.kind is Kind.CALL:
                answer = encode_result(header.request_id, self._call(*decode_call(rest[0])))
            elif header.kind is Kind.PULL:
                answer = self._pull(identity, decode_pull(head))
            else:
                assert header.kind is Kind.GOODBYE
                self._sessions.pop(identity, None)
                return
        except LedgerError as error:
            self.refused.append(error)
            answer = encode_refused(header.request_id, error)
        if answer and not (self.silent and header.kind is Kind.SEND):
            socket.send_multipart([identity, *answer])

    def _greeting(self) -> Welcome:
        fields: dict[str, Any] = {
            "entry_header_size": HOLE,
            "store_host_size": 8,
            "body_size_max": 4_194_304,
            "frame_size_max": 8_388_608,
            "frame_records_max": 65_536,
            "window_bytes": 67_108_864,
        } | self._welcome
        return Welcome(
            cluster="c",
            broker="b",
            node=self.node,
            generation=self.generation,
            role=self.standing.role,
            term=self.standing.term,
            leader=self.standing.leader,
            ack="majority-memory",
            store_host=STORE_HOST,
            **fields,
        )

    def _store(self, identity: bytes, frame: SendFrame, payload: bytes) -> list[bytes]:
        if len(payload) != frame.payload_size or crc32(payload, crc32(frame.tables)) != (
            frame.checksum
        ):
            raise ProtocolError("frame is damaged")
        rows: list[tuple[str, int, str, str, bytes]] = []
        at = number = 0
        for run in frame.runs:
            for _ in range(run.records):
                size = frame.sizes[number]
                message = decode_message(memoryview(payload), at + HOLE, end=at + size)
                assert message.size == size - HOLE and payload[at : at + HOLE] == bytes(HOLE)
                assert (message.topic.encode(), message.queue_id) == (run.topic, run.queue_id)
                record = payload[at + HOLE : at + size]
                rows.append(
                    (message.topic, message.queue_id, message.unique_id, message.tags, record)
                )
                at += size
                number += 1
        ids = [row[2] for row in rows]
        self.seen.append(Seen(frame.is_retry, ids, rows[0][0], rows[0][1], identity))
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        if not self.standing.leads:
            raise NotLeaderError("another node leads", leader=self.standing.leader)
        spans = [self._place(row, is_retry=frame.is_retry) for row in rows]
        return [
            encode_sent(
                frame.request_id,
                term=self.generation,
                store_timestamp=1_700_000_000_000,
                ack=1,
                spans=[
                    SentSpan(row, 1, one.physical_offset, one.queue_offset)
                    for row, one in enumerate(spans)
                ],
            )
        ]

    def _place(self, row: tuple[str, int, str, str, bytes], *, is_retry: bool) -> Stored:
        topic, queue_id, unique_id, tag, record = row
        log = self.log
        if is_retry and unique_id in log.places:
            return log.places[unique_id]
        queue = self.queues[topic, queue_id]
        physical_offset = log.end + HOLE
        stamped = bytearray(record)
        stamped[20:28] = len(queue).to_bytes(8, "big")
        stamped[28:36] = physical_offset.to_bytes(8, "big")
        stored = Stored(bytes(stamped), physical_offset, len(queue), tag)
        log.end += HOLE + len(record)
        queue.append(stored)
        log.places[unique_id] = stored
        for identity, pull in list(self._held):
            if (pull.topic, pull.queue_id) == (topic, queue_id):
                self._held.remove((identity, pull))
                self._consume.send_multipart([identity, *self._pull(identity, pull)])
        return stored

    def _call(self, verb: str, arguments: dict[str, object]) -> dict[str, object]:
        topic = str(arguments.get("topic", ""))
        if verb in self.unknown_verbs:
            raise ProtocolError("unknown verb", verb=verb)
        if verb in ("cluster_groups", "cluster_topic_groups", "topics"):
            return self._told(verb, arguments)
        if verb == "topic_create":
            self.topics[topic] = int(str(arguments["queues"]))
        elif verb == "route" and arguments.get("create") and topic != "forbidden":
            self.topics.setdefault(topic, 8)
        if topic not in self.topics:
            raise TopicUnknownError("no such topic", topic=topic)
        if verb in ("route", "topic_create"):
            return self._route(topic)
        key = (str(arguments.get("group")), topic)
        if verb == "group_offset":
            return {"offsets": self.commits.get(key, {})}
        if verb == "group_commit":
            offsets = arguments["offsets"]
            assert isinstance(offsets, dict)
            self.commits.setdefault(key, {}).update(offsets)
            return {}
        queue = self.queues[topic, int(str(arguments["queue"]))]
        if verb == "queue":
            return {"min": 0, "max": len(queue)}
        assert verb == "offset_by_time"
        return {"offset": min(1, len(queue))}

    def _told(self, verb: str, arguments: dict[str, object]) -> dict[str, object]:
        if verb == "cluster_groups":
            is_known = self.cluster["number"] == arguments.get("known")
            return self.cluster | ({"groups": None} if is_known else {})
        if verb == "cluster_topic_groups":
            row = self.topic_rows.get(str(arguments["topic"]), {"groups": []})
            is_known = self.cluster["number"] == arguments.get("known")
            number: dict[str, object] = {"number": self.cluster["number"]}
            return number | ({"groups": None} if is_known else row)
        told = [self._route(name) | {"system": False, "messages": 0} for name in self.topics]
        return {"topics": told}

    def _route(self, topic: str) -> dict[str, object]:
        count = self.topics[topic]
        return {"topic": topic, "read_queues": count, "write_queues": count, "perm": 6}

    def _pull(self, identity: bytes, pull: Pull) -> list[bytes]:
        self.pulls.append(pull)
        self.before_pull(pull)
        queue = self.queues[pull.topic, pull.queue_id]
        begin, status = pull.queue_offset, PullStatus.FOUND
        if begin > len(queue):
            begin, status = len(queue), PullStatus.OFFSET_OVERFLOW_BADLY
        rows = queue[begin : begin + pull.messages_max]
        found = [
            row for row in rows if not pull.tag_hashes or java_hash(row.tag) in pull.tag_hashes
        ]
        if not rows and status is PullStatus.FOUND:
            if pull.hold_ms:
                self._held.append((identity, pull))
                return []
            status = PullStatus.OFFSET_OVERFLOW_ONE
        elif not found and status is PullStatus.FOUND:
            status = PullStatus.NO_MATCHED_MESSAGE
        starts, sizes, at = array("I"), array("I"), 0
        for row in found:
            starts.append(at + HOLE)
            sizes.append(len(row.record))
            at += HOLE + len(row.record)
        tables = encode_pulled(
            pull.request_id, status, next_offset=begin + len(rows), begin=0, end=len(queue),
            starts=starts.tobytes(), sizes=sizes.tobytes(),
            suggested=self.suggested, version=pull.version,
        )  # fmt: skip
        return [tables, b"".join(bytes(HOLE) + row.record for row in found)]


def _bind_again(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Bind where another socket listened, which ZeroMQ closes when it likes."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.bind(endpoint)
            return
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise
        time.sleep(0.01)


@contextmanager
def running_peer(**welcome: Any) -> Iterator[Peer]:
    """A peer for as long as the block runs."""
    peer = Peer(**welcome)
    try:
        yield peer
    finally:
        peer.close()


def ids(peer: Peer) -> list[str]:
    """Unique ids of the messages that came, in their order."""
    return [id_ for seen in peer.seen for id_ in seen.unique_ids]
