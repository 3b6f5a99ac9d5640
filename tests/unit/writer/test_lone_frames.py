"""The short way of a lone frame does what the general way does, or nothing."""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgermq.formats.kernels import kernel
from ledgermq.formats.kernels.crc32 import crc32
from ledgermq.formats.records.message import Message, encode_message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.orders import WritableTopic
from ledgermq.ipc.page_slots import SpaceState
from ledgermq.model.config.settings import (
    LimitsSection,
    LogKind,
    NodeSection,
    QuotasSection,
    Settings,
    StoreSection,
)
from ledgermq.model.ids import Position, Term
from ledgermq.sessions.client_rights import Peer
from ledgermq.wire.header import FLAG_RESUME, FLAG_RETRY
from ledgermq.wire.send_frame import SendRun, encode_send, encode_tables
from ledgermq.wire.session import LEADER, Standing, encode_hello
from ledgermq.writer.admission.frame_admission import FrameAdmission
from ledgermq.writer.admission.writable_topics import WritableTopics
from ledgermq.writer.log.log_opening import open_log, open_queue_offsets
from ledgermq.writer.log.put_lock import PutLockHolder
from ledgermq.writer.produce_service import ProduceService
from ledgermq.writer.retention.space_gate import SpaceGate
from tests.simulator.runs.idle_queues import StepEnvironment

FILE_SIZE = 8_192
WINDOW = 3_000
TERM = Term(3)
KERNELS = [kernel, kernel.load_plain("ledgermq.formats.kernels._lone")]


class Clients:
    """A ``ClientSocket`` in memory: what comes is given to it, what is answered it keeps."""

    def __init__(self) -> None:
        self.peer = Peer()
        self.sources = self.guards = []
        self.waiting: deque[tuple[Peer, list[bytes]]] = deque()
        self.sent: list[list[bytes]] = []
        self.is_watched = False
        self.zmq_uses = [0]

    def receive(self) -> list[bytes] | None:
        if not self.waiting:
            return None
        self.peer, parts = self.waiting.popleft()
        return parts

    def send(self, identity: bytes, parts: list[bytes]) -> bool:
        self.sent.append([identity, *parts])
        return identity != GONE

    def greet(self, identity: bytes) -> None: ...

    def take_limits(self, limits: LimitsSection) -> None: ...

    def close(self) -> None: ...


class Clock:
    """Stands still between the steps of a program."""

    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def epoch_ns(self) -> int:
        return 1_760_000_000_000_000_000 + self.monotonic_ns()


class Surroundings(StepEnvironment):
    def __init__(self, given: Settings, page: CursorPage, clock: Clock, socket: Clients) -> None:
        super().__init__(given, page, clock)  # type: ignore[arg-type]
        self.socket = socket

    def produce_socket(self, *_: object, **__: object) -> Clients:  # type: ignore[override]
        return self.socket


CLIENTS = [b"one", b"two", b"far"]
GONE = b"gone!"
PEERS = {
    b"one": Peer("localhost:0:0:7"),
    b"two": Peer("localhost:1000:1000:8"),
    b"far": Peer("10.1.2.3"),
    GONE: Peer("10.1.2.4"),
}


class Node:
    """A writer's service on a store of its own; a short way that says no is the general one."""

    def __init__(self, root: Path, kind: LogKind, *, is_short: bool) -> None:
        self.settings = Settings(
            node=NodeSection(self_id="n0"),
            store=StoreSection(
                path_root_dir=root / "store",
                log=kind,
                mapped_file_size_commit_log=FILE_SIZE,
                max_message_size=2_000,
            ),
            limits=LimitsSection(client_window_bytes=WINDOW, total_window_bytes=2 * WINDOW),
        )
        self.clock = Clock()
        self.page = CursorPage.create(root / "page")
        self.socket = Clients()
        self.log = open_log(self.settings, is_in_use=False, sign_of_life=lambda: None)
        self.topics = WritableTopics(self.log.paths.topics)
        self.admission = FrameAdmission(self.settings, self.log.paths.own, self.clock.monotonic_ns)
        self.gate = SpaceGate(
            self.page,
            root,
            self.settings.retention,
            reserve=None,
            has_others=lambda: True,
            now_ns=self.clock.monotonic_ns,
        )
        self.service = ProduceService(
            Surroundings(self.settings, self.page, self.clock, self.socket),
            self.log,
            topics=self.topics,
            put_lock=PutLockHolder(self.page, warn_ms=10_000),
            gate=self.gate,
            admission=self.admission,
        )
        self.short = 0
        take = self.service._lone.take

        def counted(parts: list[bytes], batch: object) -> int:
            size = take(parts, batch) if is_short else 0
            self.short += size > 0
            return size

        self.service._lone.take = counted  # type: ignore[method-assign, assignment]
        end = self.log.writer.end.position
        self.service.begin_term(
            open_queue_offsets(
                self.log, self.settings, begin=end, end=end, sign_of_life=lambda: None
            )
        )
        self.service.tell_standing(Standing(LEADER, TERM, "n0"))
        self.topics.take({"orders": WritableTopic(4, 0, {}), "locked": WritableTopic(0, 0, {})})
        for number, identity in enumerate([*CLIENTS, GONE]):
            self.come(identity, encode_hello(number, client="c", library="l"))
        self.turn()

    @property
    def form(self) -> tuple[int, int]:
        return self.log.writer.header_size, len(self.log.store_host)

    def come(self, identity: bytes, parts: list[bytes], peer: Peer | None = None) -> None:
        self.socket.waiting.append((peer or PEERS[identity], [identity, *parts]))

    def turn(self) -> None:
        while self.socket.waiting:
            self.service.take_frames(TERM)

    def state(self) -> object:
        """All that can be seen of it from outside, and what it counts."""
        service = self.service
        slots = self.page.counters(Role.WRITER)[:].tolist()
        sessions = {
            identity: (session.in_flight, session.is_refused)
            for identity, session in service._clients.sessions.items()
        }
        places = list(service._clients.placed)
        # But since when they wait: the clock is the system's.
        waiting = [due._replace(since_ns=0) for due in service.due.waiting]
        total = service.due.unanswered.total
        return self.socket.sent, slots, sessions, places, waiting, total, self.log.writer.end

    def files(self) -> dict[str, bytes]:
        root = self.settings.store.path_root_dir
        paths = (path for path in root.rglob("*") if path.is_file() and path.name.isdigit())
        # Of the index's large files the begin, which is all that is ever written here.
        return {str(path.relative_to(root)): _begin(path) for path in paths}

    def close(self) -> None:
        self.service.close()
        self.log.writer.close()
        self.page.close()


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8 * FILE_SIZE)


@contextmanager
def nodes(kind: LogKind) -> Iterator[tuple[Node, Node]]:
    """Two that are alike, but for the short way."""
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        short, general = (
            Node(Path(one), kind, is_short=True),
            Node(Path(other), kind, is_short=False),
        )
        try:
            yield short, general
        finally:
            short.close()
            general.close()


@dataclass(frozen=True)
class Given:
    """A frame of one record, and what is changed in it."""

    topic: str = "orders"
    queue_id: int = 0
    body: bytes = b"x"
    properties: tuple[tuple[str, str], ...] = ()
    flags: int = 0
    version: int = 1
    records: int = 1
    record_topic: str | None = None
    flips: tuple[tuple[int, int], ...] = ()
    """Octets of head, tables and payload to change, before the checksum is computed."""
    late_flips: tuple[tuple[int, int], ...] = ()
    """Those to change behind it."""
    wrong_form: bool = False


def parts_of(given: Given, request_id: int, form: tuple[int, int]) -> list[bytes]:
    """Head and payload of the frame."""
    header_size, host_size = form
    message = Message(
        topic=given.record_topic or given.topic,
        queue_id=given.queue_id,
        body=given.body,
        properties=encode_properties(dict(given.properties)),
        born_timestamp=1_600_000_000_000,
        born_host=("10.0.0.1", 1_234),
        store_host=("0.0.0.0", 0),
    )
    record = bytes(header_size) + encode_message(message)
    payload = bytearray(record * given.records)
    sizes = array("I", [len(record)] * given.records).tobytes()
    tables = bytearray(
        encode_tables(sizes, [SendRun(given.records, given.queue_id, given.topic.encode())])
    )
    for place, mask in given.flips:
        at = place % (len(tables) + len(payload))
        if at < len(tables):
            tables[at] ^= mask
        else:
            payload[at - len(tables)] ^= mask
    head = bytearray(
        encode_send(
            request_id,
            tables=bytes(tables),
            records=given.records,
            runs=1,
            topics_size=len(given.topic),
            payload_size=len(payload),
            checksum=crc32(bytes(payload), crc32(bytes(tables), 0)),
            entry_header_size=header_size + given.wrong_form,
            store_host_size=host_size,
            is_retry=bool(given.flags & FLAG_RETRY),
            is_resumed=bool(given.flags & FLAG_RESUME),
        )
    )
    head[3] = given.version
    whole = head + payload
    for at, mask in given.late_flips:
        whole[at % len(whole)] ^= mask
    return [bytes(whole[: len(head)]), bytes(whole[len(head) :])]


FLIPS = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), min_size=1, max_size=2).map(
    tuple
)
PLAIN = st.builds(
    Given,
    queue_id=st.integers(0, 3),
    body=st.integers(0, 900).map(lambda size: (bytes(range(256)) * 4)[:size]),
    properties=st.sampled_from([(), (("TAGS", "a"),), (("KEYS", "k"), ("UNIQ_KEY", "0A"))]),
)
CHANGES = st.one_of(
    st.builds(lambda flips: {"flips": flips}, FLIPS),
    st.builds(lambda flips: {"late_flips": flips}, FLIPS),
    st.builds(
        lambda topic: {"topic": topic},
        st.sampled_from(["locked", "none", "SCHEDULE_TOPIC_XXXX", "LEDGERMQ_STAGED", "o" * 127]),
    ),
    st.builds(lambda queue: {"queue_id": queue}, st.sampled_from([4, 5, -1, 2**31 - 1])),
    st.builds(lambda flags: {"flags": flags}, st.integers(1, 3)),
    st.builds(lambda version: {"version": version}, st.sampled_from([0, 2, 4, 5])),
    st.builds(lambda count: {"records": count}, st.integers(2, 4)),
    st.just({"properties": (("DELAY", "2"),)}),
    st.just({"record_topic": "others"}),
    st.just({"wrong_form": True}),
    st.just({"body": bytes(2_001)}),
)
FRAMES = st.one_of(
    PLAIN, PLAIN, st.builds(lambda given, change: replace(given, **change), PLAIN, CHANGES)
)
IDENTITIES = st.sampled_from([*CLIENTS, *CLIENTS, GONE, b"nobody"])


def send(given: Given, identity: bytes, request_id: int) -> Callable[[Node], None]:
    def step(node: Node) -> None:
        peer = PEERS.get(identity, Peer("10.9.9.9"))
        node.come(identity, parts_of(given, request_id, node.form), peer)

    return step


def steal(given: Given, request_id: int) -> Callable[[Node], None]:
    """Another client takes the identity of one that has a session."""
    return lambda node: node.come(
        CLIENTS[2], parts_of(given, request_id, node.form), Peer("10.6.6.6")
    )


def malformed(count: int) -> Callable[[Node], None]:
    return lambda node: node.come(CLIENTS[0], parts_of(Given(), 1, node.form)[:1] * count)


def commit(share: float) -> Callable[[Node], None]:
    def step(node: Node) -> None:
        node.turn()
        end = node.log.writer.end.position
        node.service.due.acknowledge(Position(int(end * share)))

    return step


def pass_time(ms: int) -> Callable[[Node], None]:
    def step(node: Node) -> None:
        node.turn()
        node.clock.now_ms += ms

    return step


def set_window(ms: int) -> Callable[[Node], None]:
    def step(node: Node) -> None:
        node.turn()
        node.topics.take({"orders": WritableTopic(4, ms, {})})

    return step


def set_quota(messages: int) -> Callable[[Node], None]:
    def step(node: Node) -> None:
        node.turn()
        quotas = QuotasSection(topic_produce_messages=messages)
        node.admission.take_settings(replace(node.settings, quotas=quotas))

    return step


def set_space(state: SpaceState) -> Callable[[Node], None]:
    def step(node: Node) -> None:
        node.turn()
        node.gate.state = state

    return step


STEPS = st.lists(
    st.one_of(
        *[st.builds(send, FRAMES, IDENTITIES, st.integers(0, 2**64 - 1))] * 6,
        st.builds(steal, PLAIN, st.integers(0, 9)),
        st.builds(malformed, st.integers(0, 3)),
        st.builds(commit, st.floats(0, 1)),
        st.builds(commit, st.just(1.0)),
        st.builds(pass_time, st.integers(-5, 2_000)),
        st.builds(set_window, st.sampled_from([0, 60_000])),
        st.builds(set_quota, st.sampled_from([0, 0, 2])),
        st.builds(
            set_space, st.sampled_from([SpaceState.ROOMY, SpaceState.ROOMY, SpaceState.FULL])
        ),
        st.just(Node.turn),
    ),
    max_size=40,
)


FULL = Given(body=bytes(900))
NAMED = Given(properties=(("UNIQ_KEY", "0A"),))
ONE, TWO, FAR = CLIENTS


def sends(given: Given, *identities: bytes) -> list[Callable[[Node], None]]:
    return [send(given, identity, number) for number, identity in enumerate(identities)]


PROGRAMS = {
    "window of a client": sends(FULL, ONE, ONE, ONE, ONE),
    "window of all": sends(FULL, ONE, ONE, TWO, TWO, FAR, FAR, FAR),
    "behind a refused one": [*sends(FULL, ONE, ONE, ONE, ONE), commit(1.0), *sends(FULL, ONE)],
    "window of duplicates": [set_window(60_000), *sends(NAMED, ONE, TWO, ONE)],
    "quota": [set_quota(2), *sends(Given(), ONE, TWO, ONE, TWO), pass_time(1_000)],
    "another client's identity": [*sends(Given(), FAR), steal(Given(), 7), *sends(Given(), FAR)],
    "no room": [
        *sends(Given(), ONE, TWO),
        set_space(SpaceState.FULL),
        *sends(Given(), ONE),
        set_space(SpaceState.ROOMY),
    ],
    "who is used": [*sends(Given(), GONE), commit(1.0), *sends(Given(), FAR, TWO)],
    "who is gone": [*sends(Given(), GONE), commit(1.0), *sends(Given(), GONE)],
    "no session": sends(Given(), b"nobody"),
    "time goes back": [*sends(Given(), ONE), pass_time(-50), *sends(Given(), ONE)],
    "other frames between": [
        *sends(Given(), ONE),
        *sends(replace(FULL, records=2), TWO),
        *sends(replace(FULL, queue_id=9), ONE),
        *sends(Given(flags=FLAG_RETRY), TWO),
        *sends(Given(), ONE, TWO),
    ],
}


@pytest.mark.parametrize("kind", LogKind)
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_reason_to_say_no_is_found(kind: LogKind, name: str) -> None:
    with nodes(kind) as (short, general):
        for step in [*PROGRAMS[name], Node.turn, commit(1.0), *sends(Given(), ONE), Node.turn]:
            step(short)
            step(general)
            assert short.state() == general.state()

        assert short.files() == general.files()


@pytest.mark.slow
@pytest.mark.parametrize("module", KERNELS)
@pytest.mark.parametrize("kind", LogKind)
@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_the_short_way_does_what_the_general_way_does(
    module: ModuleType, kind: LogKind, steps: list[Callable[[Node], None]]
) -> None:
    with pytest.MonkeyPatch.context() as patch, nodes(kind) as (short, general):
        patch.setattr("ledgermq.writer.lone_frames.read_plain", module.read_plain)
        for step in [*steps, Node.turn]:
            step(short)
            step(general)
            assert short.state() == general.state()

        assert short.files() == general.files()


@pytest.mark.parametrize("module", KERNELS)
@pytest.mark.parametrize("kind", LogKind)
def test_a_lone_frame_takes_the_short_way_as_long_as_its_file_has_room(
    module: ModuleType, kind: LogKind
) -> None:
    with pytest.MonkeyPatch.context() as patch, nodes(kind) as (short, general):
        patch.setattr("ledgermq.writer.lone_frames.read_plain", module.read_plain)
        for number in range(40):
            for node in (short, general):
                send(Given(body=bytes(500), queue_id=number % 4), CLIENTS[number % 3], number)(node)
                commit(1.0)(node)

        assert short.state() == general.state()
        assert short.files() == general.files()
        # The first one of each file asks for its blocks, and the last one for the next file.
        assert 30 <= short.short < 40
        assert general.short == 0


@pytest.mark.parametrize("module", KERNELS)
def test_a_lone_frame_with_another_octet_anywhere_is_left_to_the_general_way(
    module: ModuleType,
) -> None:
    """Its checksum covers the tables and the payload; what is before them is compared."""
    head, payload = parts_of(Given(properties=(("KEYS", "k"),)), 5, (48, 8))

    def read(head: bytes, payload: bytes) -> object:
        found = module.read_plain(head, payload, 48, 8, 4_000, 2_000, 1, crc32)
        if found is None:
            return None
        request_id, sizes, runs = found
        assert list(sizes) == [len(payload)]
        (run,) = runs
        assert run[0] == 1
        return request_id, *run[1:]

    assert read(head, payload) == (5, 0, b"orders")
    own = range(6, 16)
    for at in range(len(head) + len(payload)):
        whole = bytearray(head + payload)
        whole[at] ^= 1
        found = read(bytes(whole[: len(head)]), bytes(whole[len(head) :]))
        # Two octets that nobody reads, and the request id.
        if at in own:
            assert found == (struct.unpack_from("<Q", whole, 8)[0], 0, b"orders")
        else:
            assert found is None, at
    for cut in range(len(head)):
        assert read(head[:cut], payload) is None
    for cut in range(len(payload)):
        assert read(head, payload[:cut]) is None
