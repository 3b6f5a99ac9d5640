"""Members of a group on loopback: they hear one another, and nothing that comes blocks or harms."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import zmq

from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.model.exit_status import EXIT_STORAGE
from ledgermq.model.ids import NodeId
from ledgermq.process.child_process import exit_status_of
from ledgermq.raft_node.peers.peer_group import SKIPPED_MAX
from ledgermq.sessions.keys.peer_keys import init_keys
from ledgermq.wire.peer_preamble import (
    encode_preamble,
    encode_refusal,
)
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port
from tests.process.peer_members import (
    N0,
    N1,
    N2,
    Members,
    deliver,
    preamble_of,
    raw_peer,
)

QUEUED_MAX = 96


@pytest.fixture
def clear_members(tmp_path: Path) -> Iterator[Members]:
    """Members without CURVE."""
    with Members(tmp_path) as made:
        yield made


@pytest.fixture
def guarded_members(tmp_path: Path) -> Iterator[Members]:
    """Members with keys."""
    init_keys(tmp_path / "keys", [N0, N1, N2])
    with Members(tmp_path, keys=tmp_path / "keys") as made:
        yield made


@pytest.fixture(params=["clear_members", "guarded_members"])
def members(request: pytest.FixtureRequest) -> Members:
    found: Members = request.getfixturevalue(request.param)
    return found


def test_members_hear_one_another(members: Members) -> None:
    made = [members.start(node) for node in (N0, N1, N2)]
    for source in made:
        for target in made:
            if source is not target:
                deliver(source, target, source.group.voters[0].encode() + b" says")

    assert [member.group.voters for member in made] == [(N0, N1, N2), (N1, N0, N2), (N2, N0, N1)]
    assert [member.group.refusals for member in made] == [{}, {}, {}]


def test_members_know_one_another_without_a_message(members: Members) -> None:
    made = [members.start(node) for node in (N0, N1, N2)]

    def all_are_known() -> bool:
        for member in made:
            member.pump()
        lists = [members.folder / node / "ledgermq" / "peers" for node in (N0, N1, N2)]
        return all(path.exists() and len(path.read_text().splitlines()) == 2 for path in lists)

    wait_until(all_are_known, "the greetings")

    assert [member.received for member in made] == [[], [], []]


def test_a_group_of_one_has_no_sockets_and_touches_no_file(tmp_path: Path) -> None:
    with Members(tmp_path, size=1) as alone:
        group = alone.start(N0, peers=()).group

        assert (group.voters, group.sources) == ((N0,), [])
        assert (group.receive(), group.send(N1, [b"x"])) == (None, False)
    assert list(tmp_path.iterdir()) == []


def test_a_group_of_one_with_an_address_waits_for_others_to_join(tmp_path: Path) -> None:
    with Members(tmp_path, size=2) as made:
        first = made.start(N0, peers=made.peers[:1])
        second = made.start(N1)
        made_alone = first.group.voters
        first.group.set_members(dict(peer.split("-") for peer in made.peers))
        wait_until(lambda: first.group.send(N1, [b"welcome"]), "the way to the new member")
        wait_until(lambda: first.pump() is not None and second.pump(), "the message")

    assert made_alone == (N0,)
    assert first.group.voters == (N0, N1)
    assert second.received == [(N0, [b"welcome"])]


def test_a_member_that_was_removed_is_heard_no_more(clear_members: Members) -> None:
    first, second = clear_members.start(N0), clear_members.start(N1)
    wait_until(lambda: second.group.send(N0, [b"one"]), "the way to the first")
    wait_until(first.pump, "the message")
    addresses = dict(peer.split("-") for peer in clear_members.peers)
    first.group.set_members({NodeId(node): at for node, at in addresses.items() if node != N1})

    def told() -> str | None:
        second.group.send(N0, [b"two"])
        second.pump()
        first.pump()
        return second.group.refusals.get(N0)

    reason = wait_until(told, "the refusal")

    assert reason == "n0 refuses n1: n1 is no member of the group of n0 (n0, n2)"
    assert first.received == [(N1, [b"one"])]
    assert not first.group.send(N1, [b"three"])


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


def test_nothing_is_kept_or_waited_for_when_a_peer_is_away(clear_members: Members) -> None:
    first = clear_members.start(N0)
    sent = [first.group.send(N1, [b"x" * 100_000]) for _ in range(1_000)]

    assert not any(sent)


def test_large_parts_arrive_whole(members: Members) -> None:
    first, second = members.start(N0), members.start(N1)
    deliver(first, second, b"connected")
    entries = [os.urandom(size) for size in (65_535, 65_536, 1_048_576, 8 * 1_048_576)]
    for part in entries:
        assert first.group.send(N1, [b"head", part])
    wait_until(lambda: len([m for m in second.pump() if len(m[1]) == 2]) == 4, "the parts")

    assert [m[1][1] for m in second.received if len(m[1]) == 2] == entries


@pytest.mark.slow
def test_a_peer_that_does_not_read_is_refused_more_after_a_bound(clear_members: Members) -> None:
    first = clear_members.start(N0)
    with reader_that_stops(clear_members, N1) as process:
        # The first that it takes shows that it has connected.
        wait_until(lambda: first.group.send(N1, [b"x"]), "the connection")
        process.send_signal(signal.SIGSTOP)
        # The reader stands still: a sender that waited for it would never get to the last one.
        sent = sum(first.group.send(N1, [b"x" * 1_048_576]) for _ in range(1_000))

    # What ZeroMQ holds, and what the kernel and the sockets of both sides have room for.
    assert 0 < sent <= 3 * QUEUED_MAX


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
    clear_members: Members, parts: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = clear_members.start(N0), clear_members.start(N1)
    deliver(second, first, b"before")
    with raw_peer(clear_members.endpoint(N0)) as dealer:
        for _ in range(3):
            dealer.send_multipart(parts)
        wait_until(lambda: first.pump() and first.group.malformed_count == 3, "the messages")
        deliver(second, first, b"after")
    lines = [record.getMessage() for record in caplog.records]

    assert {node for node, _ in first.received} == {N1}
    assert len([line for line in lines if line.startswith("malformed message dropped")]) == 1
    assert "127.0.0.1" in first.group.refusals


def test_a_preamble_that_is_not_whole_is_dropped(
    clear_members: Members,
) -> None:
    first = clear_members.start(N0)
    whole = encode_preamble(preamble_of(clear_members))
    unknown = whole[:5] + b"\x09" + whole[6:]
    cases = [[whole[:-1], b"x"], [whole + b"x", b"x"], [unknown, b"x"]]
    with raw_peer(clear_members.endpoint(N0)) as dealer:
        for case in cases:
            dealer.send_multipart(case)
        wait_until(lambda: first.pump() or first.group.malformed_count == len(cases), "them")

    assert first.received == []


def test_a_flood_of_garbage_leaves_the_caller_its_turn(clear_members: Members) -> None:
    first = clear_members.start(N0)
    with raw_peer(clear_members.endpoint(N0)) as dealer:
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


def test_an_old_protocol_is_no_way_around_the_keys(guarded_members: Members) -> None:
    first, second = guarded_members.start(N0), guarded_members.start(N1)
    preamble = encode_preamble(preamble_of(guarded_members))
    with socket.create_connection(("127.0.0.1", guarded_members.ports[0])) as connection:
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


def test_an_answer_that_is_no_refusal_is_dropped(clear_members: Members) -> None:
    first = clear_members.start(N0)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    router.bind(clear_members.endpoint(N1))
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


def test_a_port_that_is_taken_is_named_with_its_setting(clear_members: Members) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", clear_members.ports[0]))
        taken.listen()
        with pytest.raises(StorageError, match=r"another program has the.*node\.peers") as caught:
            clear_members.start(N0)

    # Not one of the settings: the node is started again, and finds the port free some time.
    assert exit_status_of(caught.value) == EXIT_STORAGE
    assert caught.value.details["endpoint"] == clear_members.endpoint(N0)


def test_an_address_of_another_machine_is_bound_only_with_curve(
    clear_members: Members, guarded_members: Members
) -> None:
    # TEST-NET-1 (RFC 5737) is nobody's.
    elsewhere = f"n0-192.0.2.1:{free_port()}"
    with pytest.raises(ConfigError, match=r"none of this machine's addresses.*node\.peers"):
        clear_members.start(N0, peers=(elsewhere, *clear_members.peers[1:]))
    port = elsewhere.rpartition(":")[2]
    first = guarded_members.start(N0, peers=(elsewhere, *guarded_members.peers[1:]))
    second = guarded_members.start(N1, peers=(f"n0-127.0.0.1:{port}", *guarded_members.peers[1:]))
    deliver(second, first, b"behind a translation")


def test_names_are_resolved(clear_members: Members) -> None:
    peers = tuple(peer.replace("127.0.0.1", "localhost") for peer in clear_members.peers)
    first, second = clear_members.start(N0, peers=peers), clear_members.start(N1, peers=peers)
    deliver(first, second, b"by name")
    # As the machine's resolver knows that there is none, or cannot tell.
    with pytest.raises((ConfigError, StorageError), match=r"name not resolved.*node\.peers"):
        clear_members.start(N2, peers=(*peers[:2], "n2-no-such-host.invalid:4711"))
