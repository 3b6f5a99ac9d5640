"""Direct connections between members come about by themselves, and nothing depends on them."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from ledgermq.ipc.orders import FeedFrom
from ledgermq.members.direct_listener import ACCEPTED_MAX, HANDSHAKES_MAX
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers import peer_admission
from ledgermq.raft_node.peers.direct_peers import DirectPeers, OwnCertificate
from ledgermq.raft_node.peers.peer_sockets import PART_SIZE_MAX
from ledgermq.sessions.keys.peer_keys import init_keys
from ledgermq.writer.member_feeds import DirectFeed, LedFeed
from tests.certificates import make_certificate
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port
from tests.process.peer_members import N0, N1, N2, Member, Members, deliver
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


@pytest.fixture(params=[True, False], ids=["keys", "clear"])
def members(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Members]:
    """Members with keys, and without."""
    keys = tmp_path / "keys" if request.param else None
    if keys is not None:
        init_keys(keys, [N0, N1, N2])
    with Members(tmp_path, keys=keys) as made:
        yield made


def pump(*all_members: Member) -> None:
    for member in all_members:
        member.pump()


def wait_direct(*all_members: Member) -> None:
    """Until each has a direct connection to each other one."""
    names = {NodeId(member.settings.node.self_id) for member in all_members}

    def is_direct() -> bool:
        pump(*all_members)
        return all(
            set(member.group.direct) == names - {NodeId(member.settings.node.self_id)}
            for member in all_members
        )

    wait_until(is_direct, "direct connections")


def direct_of(member: Member) -> DirectPeers:
    found = member.group._direct
    assert found is not None
    return found


def send_all(source: Member, target: Member, texts: list[bytes]) -> list[bytes]:
    """Send each once; what has come of them, in order, once the last one has."""
    peer = NodeId(target.settings.node.self_id)
    target.received.clear()
    for text in texts:

        def is_taken(text: bytes = text) -> bool:
            pump(source, target)
            return source.group.send(peer, [b"head", text])

        wait_until(is_taken, "room for a message")

    def has_come() -> bool:
        pump(source, target)
        return any(parts[-1] == texts[-1] for _, parts in target.received)

    wait_until(has_come, "the last message")
    return [parts[1] for _, parts in target.received if len(parts) == 2]


@pytest.mark.long(but=1)
def test_members_connect_directly_and_messages_of_any_size_come_in_order(members: Members) -> None:
    first, second, third = [members.start(node, direct=True) for node in (N0, N1, N2)]
    wait_direct(first, second, third)
    sizes = [1, 100, 8_192, 8_193, 16_384, 70_000, 1_048_576, PART_SIZE_MAX - 100, 3, 5_000_000]
    texts = [bytes([65 + at]) * size for at, size in enumerate(sizes)]

    assert texts == send_all(first, second, texts)
    assert texts == send_all(second, first, texts)
    assert texts == send_all(third, first, texts)


def test_what_is_more_than_a_turn_takes_wakes_the_process_again(members: Members) -> None:
    first, second = [members.start(node, direct=True) for node in (N0, N1)]
    wait_direct(first, second)
    texts = [b"%04d" % number for number in range(500)]
    for text in texts:
        assert first.group.send(N1, [text])
    first.pump()

    taken: list[bytes] = []

    def take_some() -> bool:
        # As the raft process: what can be read is asked of the sources, then some are taken.
        if not _can_read(direct_of(second).source):
            return len(taken) == len(texts)
        for _ in range(64):
            message = second.group.receive()
            if message is None:
                break
            taken.append(bytes(message.parts[0]))
        return len(taken) == len(texts)

    wait_until(take_some, "all messages")
    assert taken == texts


def test_a_broken_connection_leaves_zeromq_and_is_made_again(members: Members) -> None:
    first, second = [members.start(node, direct=True) for node in (N0, N1)]
    wait_direct(first, second)
    old = direct_of(first).open[N1]
    old._socket.shutdown(socket.SHUT_RDWR)

    wait_until(lambda: bool(old.failure) or bool(first.pump() is None), "its end")
    deliver(first, second, b"by whichever way there is")
    wait_direct(first, second)

    assert direct_of(first).open[N1] is not old
    deliver(second, first, b"and back")


def test_a_message_behind_a_broken_connection_goes_over_zeromq(members: Members) -> None:
    first, second = [members.start(node, direct=True) for node in (N0, N1)]
    wait_direct(first, second)
    theirs = direct_of(second).open[N0]
    # Its end comes as a reset, and the first one hears of it when it sends.
    theirs._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.end("gone")
    ours = direct_of(first).open[N1]

    def has_noticed() -> bool:
        first.group.send(N1, [b"into the void"])
        return bool(ours.failure)

    wait_until(has_noticed, "the reset")
    assert not first.group.direct
    assert first.group.send(N1, [b"over ZeroMQ"])
    wait_until(lambda: (N0, [b"over ZeroMQ"]) in second.pump(), "the message")


def test_what_is_no_certificate_is_refused(members: Members) -> None:
    first, second = [members.start(node, direct=True) for node in (N0, N1)]
    wait_direct(first, second)
    for part in (
        b"LMQD",
        b"LMQD\1\1\0\0garbage",
        b"LMQD\1\2\0\0xx",
        b"LMQD\1\1\0\0" + b"x" * 5_000,
    ):
        dropped = second.group.malformed_count
        assert first.group._out is not None
        assert first.group._out.send(N1, (part,))

        def is_dropped(before: int = dropped) -> bool:
            pump(first, second)
            return second.group.malformed_count > before

        wait_until(is_dropped, f"refusal of {part[:20]!r}")
    assert set(second.group.direct) == {N0}
    deliver(first, second, b"still")


def test_a_member_that_begins_anew_is_connected_anew(members: Members) -> None:
    first, second = [members.start(node, direct=True) for node in (N0, N1)]
    wait_direct(first, second)
    second.close()
    again = members.start(N1, direct=True)

    deliver(first, again, b"to the new life")
    deliver(again, first, b"from the new life")
    wait_direct(first, again)


def test_who_has_them_off_or_is_older_is_talked_with_over_zeromq(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = members.start(N0, direct=True)
    off = members.start(N1, direct=False)
    monkeypatch.setattr(peer_admission, "LEVEL", 1)
    older = members.start(N2, direct=True)
    monkeypatch.undo()

    for peer in (off, older):
        deliver(first, peer, b"hello")
        deliver(peer, first, b"hello back")
    # A few rounds of all that is done now and then.
    rounds = [first.group.levels.get(N2)]

    def have_met() -> bool:
        pump(first, off, older)
        rounds.append(first.group.levels.get(N2))
        return rounds[-1] == 1 and N1 in first.group.levels

    wait_until(have_met, "what each says of itself")
    offers = _offers_of(first, peers=(off, older))

    # It is offered to who does not want it, who says nothing; never to who would not understand.
    assert N2 not in offers
    assert not first.group.direct
    assert off.group.malformed_count == older.group.malformed_count == 0


def test_a_port_that_cannot_be_reached_leaves_zeromq(members: Members) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        first = members.start(N0, direct=True)
        second = members.start(N1, direct=True, direct_port=port)
        deliver(first, second, b"over ZeroMQ")
        deliver(second, first, b"and back")
        wait_until(
            lambda: pump(first, second) or N0 in direct_of(second)._told,
            "the attempt",
        )
        assert not first.group.direct
        deliver(first, second, b"still")
    # The port is free now.
    wait_direct(first, second)


def test_a_port_of_the_settings_is_the_one_that_is_dialled(members: Members) -> None:
    port = free_port()
    first = members.start(N0, direct=True)
    second = members.start(N1, direct=True, direct_port=port)
    wait_direct(first, second)

    ports = {
        connection.raddr.port
        for connection in psutil.Process().net_connections("tcp")
        if connection.raddr
    }
    assert port in ports


def test_strangers_are_refused_and_harm_nobody(members: Members, tmp_path: Path) -> None:
    port = free_port()
    certificate, key = make_certificate(tmp_path)
    second = members.start(N1, direct=True, direct_port=port)
    first = members.start(N0, direct=True)
    deliver(first, second, b"hello")
    deliver(second, first, b"hello back")
    refused = 0
    with ExitStack() as resources:

        def attack() -> bool:
            nonlocal refused
            pump(first, second)
            with suppress(OSError):
                stranger = socket.create_connection(("127.0.0.1", port), timeout=0.2)
                resources.callback(stranger.close)
                kind = refused % 3
                if kind == 0:
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
                elif kind == 1:
                    context = ssl.create_default_context(cafile=certificate)
                    context.check_hostname = False
                    context.verify_mode = ssl.CERT_NONE
                    context.load_cert_chain(certificate, key)
                    with suppress(TimeoutError):
                        resources.enter_context(context.wrap_socket(stranger))
                refused += 1
            return bool(first.group.direct) and bool(second.group.direct)

        wait_until(attack, "a direct connection beside strangers")

    assert set(first.group.direct) == {N1}
    assert set(second.group.direct) == {N0}
    assert send_all(first, second, [b"still here"]) == [b"still here"]


def test_who_listens_takes_so_many_strangers_and_no_more(members: Members) -> None:
    second = members.start(N1, direct=True, direct_port=free_port())
    port = second.settings.raft.direct_port
    direct = direct_of(second)
    wait_until(direct._certificate.look, "a certificate")
    assert direct._listen(N0, now=1.0)
    with ExitStack() as resources:
        taken = 0
        for _ in range(ACCEPTED_MAX + 20):
            with suppress(OSError):
                resources.enter_context(socket.create_connection(("127.0.0.1", port), 0.5))
                taken += 1
            second.group.receive()
            direct.watch(1.1, set())
        assert taken <= ACCEPTED_MAX + 10
        assert direct._listener.descriptor == -1
        # And what they have begun comes to an end.
        direct.watch(1_000.0, set())
        assert not direct._shaking


def test_who_is_let_in_no_more_has_no_direct_connection(members: Members) -> None:
    first, second = [members.start(node, direct=True) for node in (N0, N1)]
    wait_direct(first, second)
    endpoint = members.endpoint(N0).removeprefix("tcp://")
    first.group.set_members({N0: endpoint, N2: members.endpoint(N2).removeprefix("tcp://")})

    def is_gone() -> bool:
        pump(first, second)
        return not first.group.direct and not second.group.direct

    wait_until(is_gone, "the end of the connection")


def test_what_has_come_from_who_is_let_in_no_more_is_not_given(members: Members) -> None:
    first, second = [members.start(node, direct=True) for node in (N0, N1)]
    wait_direct(first, second)
    for number in range(100):
        assert first.group.send(N1, [b"%d" % number])
    first.pump()
    wait_until(lambda: second.group.receive() is not None, "the first of them")
    direct_of(second).drop(N0)

    assert second.group.receive() is None
    assert not _can_read(direct_of(second).source)


def test_each_life_of_a_raft_process_has_a_certificate_of_its_own() -> None:
    own, other = [OwnCertificate(N0, knows_writers=True) for _ in range(2)]
    wait_until(lambda: own.look() and other.look(), "certificates")
    assert own.look() != other.look()


def test_without_openssl_members_stay_with_zeromq(
    members: Members, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    first, second = [members.start(node, direct=True) for node in (N0, N1)]
    deliver(first, second, b"hello")
    deliver(second, first, b"hello back")
    wait_until(
        lambda: pump(first, second) or N1 in direct_of(first)._told,
        "the reason",
    )
    assert "openssl" in direct_of(first)._told[N1]
    assert not first.group.direct
    deliver(first, second, b"still")


def _can_read(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def _offers_of(member: Member, *, peers: tuple[Member, ...]) -> set[NodeId]:
    """To whom ``member`` offers a connection until it has offered one to n1."""
    offered: set[NodeId] = set()
    direct = direct_of(member)
    said = direct._say

    def note(peer: NodeId, part: bytes) -> bool:
        offered.add(peer)
        return said(peer, part)

    direct._say = note

    def is_offered() -> bool:
        pump(member, *peers)
        return N1 in offered

    wait_until(is_offered, "an offer")
    return offered


class Feeds(NamedTuple):
    """Two members, and their writers: that of the first one leads, the other one's follows."""

    one: Member
    other: Member
    leads: LedFeed
    follows: DirectFeed

    def pump(self) -> list[tuple[NodeId, list[bytes]]]:
        """Have all of them look once; what the first one's writer has got."""
        pump(self.one, self.other)
        return [(peer, [bytes(part) for part in parts]) for peer, parts in self.leads.take()]


@pytest.fixture
def feeds(members: Members) -> Iterator[Feeds]:
    one, other = [members.start(node, direct=True) for node in (N0, N1)]
    wait_direct(one, other)
    with closing(LedFeed()) as leads, closing(DirectFeed()) as follows:
        yield Feeds(one, other, leads, follows)


def invited(feeds: Feeds) -> FeedFrom:
    """What the second one's writer is told, once the first one's awaits it."""
    awaited = feeds.one.group.await_follower(N1)
    assert awaited is not None
    order = feeds.other.group.feed_from(N0, feeds.leads.await_follower(N1, awaited))
    assert order is not None
    return order


def is_there(feeds: Feeds) -> bool:
    """Whether the two writers are connected."""
    feeds.pump()
    feeds.follows.take()
    awaited = feeds.one.group.await_follower(N1)
    return awaited is not None and feeds.leads.await_follower(N1, awaited) == 0


def connect(feeds: Feeds) -> None:
    feeds.follows.dial(invited(feeds))
    wait_until(lambda: is_there(feeds), "a connection of the writers")


def is_over(feeds: Feeds) -> bool:
    """Whether the second one's writer has no connection any more."""
    feeds.pump()
    feeds.follows.take()
    return not feeds.follows.open


def test_a_writer_is_fed_by_the_writer_that_awaits_it(feeds: Feeds) -> None:
    connect(feeds)
    sizes = [1, 8_193, 70_000, 3_000_000]
    found: list[tuple[NodeId, list[bytes]]] = []
    for size in sizes:
        assert feeds.leads.send(N1, b"head", bytes(size))

    def has_come() -> bool:
        feeds.pump()
        taken = feeds.follows.take()
        found.extend((peer, [bytes(part) for part in parts]) for peer, parts in taken)
        return len(found) == len(sizes)

    wait_until(has_come, "all of it at the writer")
    feeds.follows.send(N0, b"reply")
    wait_until(lambda: (N1, [b"reply"]) in feeds.pump(), "the reply")

    assert found == [(N0, [b"head", bytes(size)]) for size in sizes]
    assert (feeds.one.received, feeds.other.received) == ([], [])
    feeds.follows.close()

    def is_gone() -> bool:
        feeds.pump()
        return not feeds.leads.send(N1, b"head")

    wait_until(is_gone, "the end of the connection")


def test_another_life_of_a_raft_process_has_its_writers_begin_anew(feeds: Feeds) -> None:
    connect(feeds)
    later = OwnCertificate(N0, knows_writers=True)
    wait_until(later.look, "a certificate")
    awaited = feeds.one.group.await_follower(N1)
    assert awaited is not None

    assert feeds.leads.await_follower(N1, awaited._replace(pem=later.pem)) > 0
    assert not feeds.leads.send(N1, b"head")
    wait_until(lambda: is_over(feeds), "the end of the connection")


def test_nobody_who_is_not_believed_passes_for_a_writer(feeds: Feeds) -> None:
    stranger = OwnCertificate(N1, knows_writers=True)
    wait_until(stranger.look, "a certificate")
    feeds.follows.dial(invited(feeds)._replace(pem=stranger.pem))

    wait_until(lambda: is_over(feeds), "the end of the connection")

    assert not is_there(feeds)


def test_strangers_cost_a_writer_a_few_handshakes(feeds: Feeds) -> None:
    """Which it ends by itself; whoever is awaited is let in behind them."""
    order = invited(feeds)
    with ExitStack() as opened:
        for _ in range(HANDSHAKES_MAX + 2):
            address = (order.host, order.port)
            opened.enter_context(socket.create_connection(address, PATIENCE_S))
            feeds.pump()

        def are_shaking() -> bool:
            feeds.pump()
            return len(feeds.leads._shaking) == HANDSHAKES_MAX

        def are_ended() -> bool:
            feeds.leads.look()
            return not feeds.leads._shaking

        wait_until(are_shaking, "handshakes")
        wait_until(are_ended, "their end")
    connect(feeds)


def test_who_knows_nothing_of_writers_is_told_nothing_of_them(members: Members) -> None:
    one, other = members.start(N0, direct=True), members.start(N1, direct=True, writers=False)
    wait_direct(one, other)

    for member, peer in ((one, N1), (other, N0)):
        assert not member.group.may_feed(peer)
        assert member.group.await_follower(peer) is None
