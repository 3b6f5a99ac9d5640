"""Members of a group on loopback: who is let in, who is told why not, and that nothing blocks."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import zmq
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port

from ledgermq.daemon.peer_group import SKIPPED_MAX, PeerGroup
from ledgermq.daemon.peer_identity import cluster_id
from ledgermq.daemon.peer_keys import init_keys
from ledgermq.model.errors import ConfigError, CorruptLogError, StorageError
from ledgermq.model.ids import NodeId
from ledgermq.model.settings import (
    AckMode,
    AckSection,
    LogKind,
    NodeSection,
    RaftSection,
    Settings,
    StoreSection,
)
from ledgermq.wire.peer_preamble import (
    AgreedSettings,
    Preamble,
    decode_refusal,
    encode_preamble,
    encode_refusal,
)

FILE_SIZE = 262_144
N0, N1, N2 = NodeId("n0"), NodeId("n1"), NodeId("n2")
QUEUED_MAX = 96

Received = list[tuple[NodeId, list[bytes]]]


class Member:
    """The sockets of one node, in a context of its own, as in a process of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.group = PeerGroup.of(settings, self.context)
        self.received: Received = []

    def pump(self) -> Received:
        """Take all that waits, as the raft process does; all that ever came."""
        while (message := self.group.receive()) is not None:
            self.received.append((message.node, [bytes(part) for part in message.parts]))
        return self.received

    def close(self) -> None:
        if not self.context.closed:
            self.group.close()
            self.context.destroy(linger=0)


class Members:
    """Makes members whose stores are in one folder, and closes all that were made."""

    def __init__(self, folder: Path, *, size: int = 3, keys: Path | None = None) -> None:
        self.folder = folder
        self.ports = [free_port() for _ in range(size)]
        self.peers = tuple(f"n{at}-127.0.0.1:{port}" for at, port in enumerate(self.ports))
        self.keys = keys
        self.made: list[Member] = []

    def settings(
        self,
        node: NodeId,
        *,
        cluster: str = "c",
        log: LogKind = LogKind.DLEDGER,
        ack: AckMode = AckMode.MAJORITY_FSYNC,
        file_size: int = FILE_SIZE,
        max_message_size: int = 4_096,
        peers: tuple[str, ...] | None = None,
        root: str | None = None,
        keys: str | None = None,
    ) -> Settings:
        return Settings(
            node=NodeSection(
                broker_cluster_name=cluster,
                self_id=node,
                peers=self.peers if peers is None else peers,
            ),
            store=StoreSection(
                path_root_dir=self.folder / (root or node),
                log=log,
                mapped_file_size_commit_log=file_size,
                max_message_size=max_message_size,
            ),
            ack=AckSection(mode=ack),
            raft=RaftSection(
                curve=self.keys is not None,
                keys_dir=None if self.keys is None else self.keys / (keys or node),
            ),
        )

    def start(self, node: NodeId, **changes: object) -> Member:
        member = Member(self.settings(node, **changes))  # type: ignore[arg-type]
        self.made.append(member)
        return member

    def endpoint(self, node: NodeId) -> str:
        return f"tcp://127.0.0.1:{self.ports[int(node[1:])]}"

    def close(self) -> None:
        for member in self.made:
            member.close()


@pytest.fixture
def clear(tmp_path: Path) -> Iterator[Members]:
    """Members without CURVE."""
    members = Members(tmp_path)
    yield members
    members.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Members]:
    """Members with keys."""
    init_keys(tmp_path / "keys", [N0, N1, N2])
    members = Members(tmp_path, keys=tmp_path / "keys")
    yield members
    members.close()


@pytest.fixture(params=["clear", "guarded"])
def members(request: pytest.FixtureRequest) -> Members:
    found: Members = request.getfixturevalue(request.param)
    return found


def deliver(source: Member, target: Member, text: bytes) -> None:
    """Send until it has arrived: before the connection stands, sends are refused."""
    peer = NodeId(target.settings.node.self_id)
    expected = (NodeId(source.settings.node.self_id), [text])

    def has_arrived() -> bool:
        source.group.send(peer, [text])
        source.pump()
        return expected in target.pump()

    wait_until(has_arrived, f"{text!r}")


def refused(source: Member, target: Member) -> tuple[str, str]:
    """Send until both know that the source is refused: what the target says, and the source."""
    own, peer = NodeId(source.settings.node.self_id), NodeId(target.settings.node.self_id)

    def both() -> tuple[str, str] | None:
        source.group.send(peer, [b"let me in"])
        source.pump()
        target.pump()
        here, there = target.group.refusals.get(own), source.group.refusals.get(peer)
        return (here, there) if here and there else None

    found: tuple[str, str] = wait_until(both, "the refusal")
    # What an earlier life of the source has sent may still come.
    assert (own, [b"let me in"]) not in target.received
    return found


@contextmanager
def raw_peer(
    endpoint: str, *, keys: Path | None = None, node: NodeId = N1, routing_id: bytes = b""
) -> Iterator[zmq.Socket[bytes]]:
    """A DEALER that says what it likes, connected without keys or with those of ``node`` for n0."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 0)
    if routing_id:
        dealer.setsockopt(zmq.ROUTING_ID, routing_id)
    if keys is not None:
        own = keys / node
        dealer.setsockopt(zmq.CURVE_SECRETKEY, (own / f"{node}.secret").read_bytes().strip())
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, (own / f"{node}.public").read_bytes().strip())
        dealer.setsockopt(zmq.CURVE_SERVERKEY, (own / "n0.public").read_bytes().strip())
    dealer.connect(endpoint)
    try:
        yield dealer
    finally:
        context.destroy(linger=0)


def preamble_of(members: Members, source: NodeId = N1, target: NodeId = N0) -> Preamble:
    agreed = AgreedSettings(LogKind.DLEDGER, AckMode.MAJORITY_FSYNC, FILE_SIZE, 4_096)
    cluster = cluster_id(members.settings(source).node)
    return Preamble(source, target, cluster, b"i" * 16, agreed)


def wait_answer(dealer: zmq.Socket[bytes], target: Member) -> str:
    """The reason that a raw peer is refused with."""

    def answered() -> bool:
        target.pump()
        return bool(dealer.poll(0))

    wait_until(answered, "an answer")
    return decode_refusal(dealer.recv())


def test_members_hear_one_another(members: Members) -> None:
    made = [members.start(node) for node in (N0, N1, N2)]
    for source in made:
        for target in made:
            if source is not target:
                deliver(source, target, source.group.voters[0].encode() + b" says")

    assert [member.group.voters for member in made] == [(N0, N1, N2), (N1, N0, N2), (N2, N0, N1)]
    assert [member.group.refusals for member in made] == [{}, {}, {}]


def test_a_group_of_one_has_no_sockets_and_touches_no_file(tmp_path: Path) -> None:
    alone = Members(tmp_path, size=1)
    for peers in ((), alone.peers):
        member = alone.start(N0, peers=peers)

        assert (member.group.voters, member.group.sources) == ((N0,), [])
        assert (member.group.receive(), member.group.send(N1, [b"x"])) == (None, False)
    assert list(tmp_path.iterdir()) == []
    alone.close()


def test_one_of_the_sources_wakes_who_waits_for_a_message(members: Members) -> None:
    first, second = members.start(N0), members.start(N1)
    deliver(first, second, b"connected")
    poller = zmq.Poller()
    for source in second.group.sources:
        poller.register(source, zmq.POLLIN)
    second.pump()

    assert first.group.send(N1, [b"wake"])
    assert poller.poll(10_000) != []


def test_a_peer_that_comes_back_is_heard_and_hears_again(members: Members) -> None:
    first, second = members.start(N0), members.start(N1)
    deliver(first, second, b"before")
    deliver(second, first, b"before")
    second.close()
    wait_until(lambda: not first.group.send(N1, [b"lost"]), "the end of the connection")
    again = members.start(N1)
    deliver(first, again, b"after")
    deliver(again, first, b"after")

    assert first.group.refusals == again.group.refusals == {}


def test_a_peer_that_is_away_costs_no_time(clear: Members) -> None:
    first = clear.start(N0)
    begin = time.monotonic()
    sent = [first.group.send(N1, [b"x" * 100_000]) for _ in range(1_000)]

    assert not any(sent)
    assert time.monotonic() - begin < 2.0


def test_large_parts_arrive_whole(members: Members) -> None:
    first, second = members.start(N0), members.start(N1)
    deliver(first, second, b"connected")
    entries = [os.urandom(size) for size in (65_535, 65_536, 1_048_576, 8 * 1_048_576)]
    for part in entries:
        assert first.group.send(N1, [b"head", part])
    wait_until(lambda: len([m for m in second.pump() if len(m[1]) == 2]) == 4, "the parts")

    assert [m[1][1] for m in second.received if len(m[1]) == 2] == entries


@pytest.mark.slow
def test_a_peer_that_does_not_read_is_refused_more_after_a_bound(clear: Members) -> None:
    first = clear.start(N0)
    with reader_that_stops(clear, N1) as process:
        # The first that it takes shows that it has connected.
        wait_until(lambda: first.group.send(N1, [b"x"]), "the connection")
        process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        sent = sum(first.group.send(N1, [b"x" * 1_048_576]) for _ in range(1_000))
        took = time.monotonic() - begin

    # What ZeroMQ holds, and what the kernel and the sockets of both sides have room for.
    assert 0 < sent <= 3 * QUEUED_MAX
    assert took < 2.0


@contextmanager
def reader_that_stops(members: Members, node: NodeId) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has bound the node's port, and never reads."""
    script = (
        "import sys, time, zmq\n"
        "router = zmq.Context().socket(zmq.ROUTER)\n"
        "router.setsockopt(zmq.RCVHWM, 1)\n"
        "router.bind(sys.argv[1])\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, members.endpoint(node)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cluster": "other"}, "n1 is of another group than n0: node.broker_cluster_name or"),
        (
            {"file_size": 524_288},
            "store.mapped_file_size_commit_log is 524288 on n1, but 262144 on n0",
        ),
        ({"max_message_size": 9}, "store.max_message_size is 9 on n1, but 4096 on n0"),
        (
            {"ack": AckMode.LEADER},
            "ack.mode is leader on n1, but majority-fsync on n0",
        ),
        ({"log": LogKind.COMMITLOG}, "store.log is commitlog on n1, but dledger on n0"),
    ],
)
def test_other_settings_are_refused_and_named_on_both_sides(
    members: Members, changes: dict[str, object], expected: str
) -> None:
    first, second = members.start(N0), members.start(N1, **changes)
    here, there = refused(second, first)

    assert here.startswith(expected)
    assert there.startswith(f"n0 refuses n1: {expected}")


def test_a_node_that_is_no_member_is_refused_and_told(tmp_path: Path) -> None:
    of_two, of_three = Members(tmp_path, size=2), Members(tmp_path, size=3)
    of_three.peers = (*of_two.peers, of_three.peers[2])
    first, stranger = of_two.start(N0), of_three.start(N2)
    here, there = refused(stranger, first)
    of_two.close()
    of_three.close()

    assert here == "n2 is none of node.peers of n0 (n0, n1)"
    assert there == f"n0 refuses n2: {here}"


def test_a_peer_with_the_address_of_another_one_is_refused_and_told(clear: Members) -> None:
    first = clear.start(N0)
    wrong = f"n2-127.0.0.1:{clear.ports[0]}"
    second = clear.start(N1, peers=(*clear.peers[:2], wrong))

    def told() -> str | None:
        second.group.send(N2, [b"for n2"])
        second.pump()
        first.pump()
        return second.group.refusals.get(N2)

    there = wait_until(told, "the refusal")

    assert there == "n2 refuses n1: n1 means n2, but reached n0: node.peers has a wrong address"


def test_two_nodes_of_one_name_are_told_apart(clear: Members) -> None:
    first = clear.start(N0)
    with raw_peer(clear.endpoint(N0)) as dealer:
        dealer.send_multipart([encode_preamble(preamble_of(clear, source=N0)), b"x"])
        reason = wait_answer(dealer, first)

    assert reason == "two nodes call themselves n0: node.self_id must differ"


def test_another_version_is_refused_and_named(clear: Members) -> None:
    first = clear.start(N0)
    with raw_peer(clear.endpoint(N0)) as dealer:
        future = encode_preamble(preamble_of(clear), version=9) + b"what version 9 adds"
        dealer.send_multipart([future, b"x"])
        reason = wait_answer(dealer, first)

    assert reason.startswith("n1 speaks version 9 of the protocol between members, n0 speaks")
    assert first.group.refusals == {N1: reason}


def test_a_wiped_disk_is_refused_until_it_is_forgotten(members: Members) -> None:
    first, second = members.start(N0), members.start(N1)
    deliver(second, first, b"before")
    second.close()
    wiped = members.start(N1, root="fresh")
    first.received.clear()
    here, there = refused(wiped, first)

    assert here.startswith("n1 has another disk than n0 knows it by (identity ")
    assert "`ledgermq raft forget n1` on n0" in here
    assert there == f"n0 refuses n1: {here}"
    assert (first.group.forget(N1), first.group.forget(N1)) == (True, False)
    deliver(wiped, first, b"let in")
    assert first.group.refusals == {}
    wiped.close()
    old = members.start(N1)
    first.received.clear()
    assert refused(old, first)[0].startswith("n1 has another disk")


def test_what_was_trusted_is_still_known_after_a_restart(clear: Members) -> None:
    first, second = clear.start(N0), clear.start(N1)
    deliver(second, first, b"before")
    first.close()
    second.close()
    again, wiped = clear.start(N0), clear.start(N1, root="fresh")

    assert refused(wiped, again)[0].startswith("n1 has another disk")


def test_a_copied_disk_is_refused(clear: Members) -> None:
    first, second = clear.start(N0), clear.start(N1)
    deliver(second, first, b"before")
    identity = (clear.folder / "n1" / "ledgermq" / "identity").read_bytes()[24:40]
    own = (clear.folder / "n0" / "ledgermq" / "identity").read_bytes()[24:40]
    reasons = []
    for copied in (identity, own):
        with raw_peer(clear.endpoint(N0)) as dealer:
            preamble = preamble_of(clear, source=N2)._replace(identity=copied)
            dealer.send_multipart([encode_preamble(preamble), b"x"])
            reasons.append(wait_answer(dealer, first))

    assert reasons == [
        "n2 runs on a copy of the disk of n1",
        "n2 runs on a copy of the disk of n0",
    ]


def test_the_store_of_another_member_or_group_is_not_started(clear: Members) -> None:
    clear.start(N0).close()
    with pytest.raises(ConfigError, match=r"another member.*node\.self_id"):
        clear.start(N1, root="n0")
    with pytest.raises(ConfigError, match=r"another group.*node\.broker_cluster_name"):
        clear.start(N0, cluster="renamed")


@pytest.mark.parametrize("name", ["identity", "peers"])
def test_a_damaged_file_stops_the_node_and_is_named(clear: Members, name: str) -> None:
    first, second = clear.start(N0), clear.start(N1)
    deliver(second, first, b"remembered")
    first.close()
    path = clear.folder / "n0" / "ledgermq" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    with pytest.raises(CorruptLogError, match=str(path)):
        clear.start(N0)


def test_a_refused_peer_is_logged_once_and_let_in_when_it_is_mended(
    clear: Members, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = clear.start(N0), clear.start(N1, max_message_size=9)
    refused(second, first)
    before = first.group.refused_here_count

    def refused_again() -> bool:
        second.group.send(N0, [b"again"])
        second.pump()
        first.pump()
        return first.group.refused_here_count > before + 5

    wait_until(refused_again, "more refusals")
    second.close()
    deliver(clear.start(N1), first, b"mended")
    lines = [record.getMessage() for record in caplog.records]

    assert len([line for line in lines if line.startswith("peer refused: peer=n1")]) == 1
    assert len([line for line in lines if line.startswith("refused by a peer: peer=n0")]) == 1
    assert lines.count("peer is let in now: peer=n1") == 1
    assert first.group.refusals == {}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([b""], id="nothing"),
        pytest.param([b"garbage", b"x"], id="short"),
        pytest.param([b"g" * 88, b"x"], id="no magic"),
        pytest.param([b"LMQP" + b"\1" * 84, b"x"], id="no name"),
        pytest.param([b"x"] * 5_000, id="many parts"),
        pytest.param([encode_refusal("you are refused"), b"x"], id="refusal"),
    ],
)
def test_garbage_is_dropped_counted_and_logged_once(
    clear: Members, parts: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = clear.start(N0), clear.start(N1)
    deliver(second, first, b"before")
    with raw_peer(clear.endpoint(N0)) as dealer:
        for _ in range(3):
            dealer.send_multipart(parts)
        wait_until(lambda: first.pump() and first.group.malformed_count == 3, "the messages")
        deliver(second, first, b"after")
    lines = [record.getMessage() for record in caplog.records]

    assert {node for node, _ in first.received} == {N1}
    assert len([line for line in lines if line.startswith("malformed message dropped")]) == 1
    assert "127.0.0.1" in first.group.refusals


def test_a_preamble_without_a_message_or_with_unknown_codes_is_dropped(clear: Members) -> None:
    first = clear.start(N0)
    whole = encode_preamble(preamble_of(clear))
    unknown = whole[:5] + b"\x09" + whole[6:]
    cases = [[whole], [whole[:-1], b"x"], [whole + b"x", b"x"], [unknown, b"x"]]
    with raw_peer(clear.endpoint(N0)) as dealer:
        for case in cases:
            dealer.send_multipart(case)
        wait_until(lambda: first.pump() or first.group.malformed_count == len(cases), "them")

    assert first.received == []


def test_a_flood_of_garbage_leaves_the_caller_its_turn(clear: Members) -> None:
    first = clear.start(N0)
    with raw_peer(clear.endpoint(N0)) as dealer:
        for _ in range(40 * SKIPPED_MAX):
            dealer.send(b"garbage")
        wait_until(lambda: first.group.receive() is None and first.group.malformed_count, "any")
        before = first.group.malformed_count
        assert first.group.receive() is None
        assert first.group.malformed_count - before <= SKIPPED_MAX
        wait_until(
            lambda: first.pump() or first.group.malformed_count == 40 * SKIPPED_MAX, "the rest"
        )


def test_bytes_that_are_no_zeromq_do_no_harm(members: Members) -> None:
    first, second = members.start(N0), members.start(N1)
    # The first ones pass for ZeroMQ's very first protocol, which has no properties: an anonymous
    # peer with an empty message, and one with all that a member would send.
    preamble = encode_preamble(preamble_of(members))
    old = b"\1\0" + bytes([len(preamble) + 1]) + b"\1" + preamble + b"\2\0x"
    for content in (b"\1\0\1\0", old, b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), b""):
        with socket.create_connection(("127.0.0.1", members.ports[0])) as connection:
            connection.sendall(content)
            deliver(second, first, b"still there")
            first.received.clear()
    deliver(second, first, b"to the end")

    assert {node for node, _ in first.received} == {N1}


def test_an_old_protocol_is_no_way_around_the_keys(guarded: Members) -> None:
    first, second = guarded.start(N0), guarded.start(N1)
    preamble = encode_preamble(preamble_of(guarded))
    with socket.create_connection(("127.0.0.1", guarded.ports[0])) as connection:
        connection.sendall(b"\1\0" + bytes([len(preamble) + 1]) + b"\1" + preamble + b"\2\0x")
        # ZeroMQ ends the connection.
        connection.settimeout(20)
        with suppress(ConnectionResetError):
            while connection.recv(100):
                first.pump()
        deliver(second, first, b"of a member")

    assert {(node, part) for node, parts in first.received for part in parts} == {
        (N1, b"of a member")
    }


def test_an_answer_that_is_no_refusal_is_dropped(clear: Members) -> None:
    first = clear.start(N0)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    router.bind(clear.endpoint(N1))
    try:
        wait_until(lambda: first.group.send(N1, [b"x"]), "the connection")
        routing_id = router.recv_multipart()[0]
        router.send_multipart([routing_id, b"garbage"])
        router.send_multipart([routing_id, b"LMQR\7\0\0\0because\nof \xff"])
        wait_until(lambda: first.pump() or N1 in first.group.refusals, "the refusal")
    finally:
        context.destroy(linger=0)

    assert first.group.malformed_count == 1
    assert first.group.refusals[N1] == "n1 refuses n0: because?of \ufffd"


def test_an_unknown_key_is_refused_on_both_sides_until_keys_are_exchanged(
    guarded: Members, tmp_path: Path
) -> None:
    init_keys(tmp_path / "other", [N0, N1, N2])
    # It knows the others by their right keys, but has another one itself.
    for node in (N0, N2):
        right = (tmp_path / "keys" / "n1" / f"{node}.public").read_bytes()
        (tmp_path / "other" / "n1" / f"{node}.public").write_bytes(right)
    first = guarded.start(N0)
    second = guarded.start(N1, keys="../other/n1")

    def both() -> tuple[str, str] | None:
        second.pump()
        first.pump()
        here, there = first.group.refusals.get(NodeId("127.0.0.1")), second.group.refusals.get(N0)
        return (here, there) if here and there else None

    here, there = wait_until(both, "the refusal")
    sent = second.group.send(N0, [b"x"])

    assert here.startswith("unknown key ") and "raft.keys_dir" in here
    assert there.startswith("n0 does not know the key of n1")
    assert (sent, first.received) == (False, [])

    # ZeroMQ itself would never try again after such an answer.
    first.close()
    key = (tmp_path / "other" / "n1" / "n1.public").read_bytes()
    (tmp_path / "keys" / "n0" / "n1.public").write_bytes(key)
    deliver(second, guarded.start(N0), b"with the new key")


def test_a_peer_with_another_key_than_it_is_known_by_is_not_talked_to(
    guarded: Members, tmp_path: Path
) -> None:
    init_keys(tmp_path / "other", [N0, N1, N2])
    first = guarded.start(N0)
    impostor = guarded.start(N1, keys="../other/n1")

    def told() -> bool:
        for member in (first, impostor):
            member.pump()
        return N1 in first.group.refusals and NodeId("unknown") in impostor.group.refusals

    wait_until(told, "the failure of the handshake")

    assert "n1 ended the handshake: its key is not the one" in first.group.refusals[N1]
    assert impostor.group.refusals[NodeId("unknown")].startswith("handshake failed: ")
    assert not first.group.send(N1, [b"secret"])


def test_a_member_without_curve_is_refused_and_both_are_told(guarded: Members) -> None:
    first = guarded.start(N0)
    in_the_clear = Members(guarded.folder)
    in_the_clear.ports, in_the_clear.peers = guarded.ports, guarded.peers
    second = in_the_clear.start(N1)

    def told() -> bool:
        for member in (first, second):
            member.pump()
        return NodeId("unknown") in first.group.refusals and N0 in second.group.refusals

    wait_until(told, "the failure of the handshake")
    in_the_clear.close()

    assert "raft.curve" in first.group.refusals[NodeId("unknown")]
    assert "raft.curve differs" in second.group.refusals[N0]


def test_a_member_cannot_speak_for_another_one(guarded: Members) -> None:
    first = guarded.start(N0)
    with raw_peer(guarded.endpoint(N0), keys=guarded.keys, node=N2) as dealer:
        dealer.send_multipart([encode_preamble(preamble_of(guarded)), b"a vote of n1"])
        reason = wait_answer(dealer, first)

    assert reason == "a node with the key of n2 calls itself n1: raft.keys_dir is another's"
    assert first.received == []


def test_a_connection_that_takes_over_a_routing_id_does_not_take_over_the_name(
    guarded: Members,
) -> None:
    first = guarded.start(N0)
    endpoint, preamble = guarded.endpoint(N0), encode_preamble(preamble_of(guarded))
    with raw_peer(endpoint, keys=guarded.keys, node=N1, routing_id=b"same") as honest:
        honest.send_multipart([preamble, b"from n1"])
        wait_until(lambda: (N1, [b"from n1"]) in first.pump(), "the member's own message")
    with raw_peer(endpoint, keys=guarded.keys, node=N2, routing_id=b"same") as thief:

        def is_refused() -> bool:
            thief.send_multipart([preamble, b"from n2"])
            first.pump()
            return "a node with the key of n2" in first.group.refusals.get(N1, "")

        wait_until(is_refused, "the refusal")

    assert first.received == [(N1, [b"from n1"])]


def test_a_port_that_is_taken_is_named_with_its_setting(clear: Members) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", clear.ports[0]))
        taken.listen()
        with pytest.raises(ConfigError, match=r"another program listens.*node\.peers") as caught:
            clear.start(N0)

    assert caught.value.details["endpoint"] == clear.endpoint(N0)


def test_an_address_of_another_machine_is_bound_only_with_curve(
    clear: Members, guarded: Members
) -> None:
    # TEST-NET-1 (RFC 5737) is nobody's.
    elsewhere = f"n0-192.0.2.1:{free_port()}"
    with pytest.raises(ConfigError, match=r"none of this machine's addresses.*node\.peers"):
        clear.start(N0, peers=(elsewhere, *clear.peers[1:]))
    port = elsewhere.rpartition(":")[2]
    first = guarded.start(N0, peers=(elsewhere, *guarded.peers[1:]))
    second = guarded.start(N1, peers=(f"n0-127.0.0.1:{port}", *guarded.peers[1:]))
    deliver(second, first, b"behind a translation")


def test_names_are_resolved(clear: Members) -> None:
    peers = tuple(peer.replace("127.0.0.1", "localhost") for peer in clear.peers)
    first, second = clear.start(N0, peers=peers), clear.start(N1, peers=peers)
    deliver(first, second, b"by name")
    with pytest.raises(ConfigError, match=r"name not resolved.*node\.peers"):
        clear.start(N2, peers=(*peers[:2], "n2-no-such-host.invalid:4711"))


def test_a_group_without_keys_is_not_started(tmp_path: Path) -> None:
    keyless = Members(tmp_path, keys=tmp_path / "keys")
    with pytest.raises(ConfigError, match=r"ledgermq keys init.*raft\.keys_dir"):
        keyless.start(N0)

    assert not (tmp_path / "n0").exists()


def test_a_store_that_cannot_be_written_is_told(clear: Members) -> None:
    own = clear.folder / "n0" / "ledgermq"
    own.mkdir(parents=True)
    (own / "identity").mkdir()

    with pytest.raises(StorageError, match="identity"):
        clear.start(N0)
