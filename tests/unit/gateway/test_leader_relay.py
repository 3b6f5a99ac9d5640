"""Requests that a follower hands on: whoever has many, or a slow one, holds up nobody else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from ledgermq.gateway.leader_relay import (
    RELAYED_KEY,
    SHARE_BYTES,
    SHARE_REQUESTS,
    TIMEOUT_MS,
    LeaderRelay,
    Relayed,
)
from ledgermq.gateway.requests import Asked
from ledgermq.gateway.transport.addresses import GroupAddresses
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.gateway.transport.server_links import Authorities, ServerLinks
from ledgermq.gateway.transport.tls_channel import TlsChannel
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import HEADER_SIZE_MAX, Command, decode_command, encode_command
from ledgermq.remoting.frames import FrameSplitter
from ledgermq.sessions.keys.tls_files import server_context
from tests.certificates import make_certificate
from tests.readable import is_readable
from tests.suite.patience import PATIENCE_S


class Known(NamedTuple):
    """What a follower knows of its leader."""

    of_leader: str
    leads: bool = False
    self_id: str = "n1"


class From(NamedTuple):
    """A client."""

    peer: tuple[str, int]
    is_sealed: bool = False


class Leader:
    """A listening socket, and a follower's relays to it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_S)
        self.links = ServerLinks()
        known = cast("GroupAddresses", Known(f"127.0.0.1:{self.listener.getsockname()[1]}"))
        self._known = known
        self.sends, self.changes = self.relay(Relayed.SENDS), self.relay(Relayed.CHANGES)
        self.told: list[tuple[Asked, Command]] = []

    def relay(self, kind: Relayed, authorities: Authorities | None = None) -> LeaderRelay:
        return LeaderRelay(self.links, self._known, self._told, kind, authorities=authorities)

    def accept(self, certified: tuple[Path, Path] | None = None) -> Served:
        """The connection that was made first, of those that nobody has accepted.

        Args:
            certified: certificate and key of a leader that serves TLS.
        """
        sock, _ = self.listener.accept()
        sock.settimeout(PATIENCE_S)
        if certified is None:
            return Served(sock)
        return Served(sock, TlsChannel(server_context(*certified, section="remoting")))

    def until_told(self, count: int, now_ms: int = 0) -> list[int]:
        """Codes of the replies, once there are so many."""
        while len(self.told) < count:
            assert is_readable(self.links, PATIENCE_S), "nothing more happens"
            self.links.turn(now_ms)
        return [reply.code for _, reply in self.told]

    def _told(self, asked: Asked, reply: Command) -> None:
        self.told.append((asked, reply))


class Served:
    """A connection at the leader's end."""

    def __init__(self, sock: socket.socket, tls: TlsChannel | None = None) -> None:
        self.sock = sock
        self._splitter = FrameSplitter()
        self._tls = tls

    def requests(self, links: ServerLinks, count: int) -> list[Command]:
        """So many; fewer where the connection ends."""
        found: list[Command] = []
        while len(found) < count:
            links.turn(0)
            data = self.sock.recv(65_536)
            if not data:
                break
            if self._tls is not None:
                data = self._tls.open(data)
                self.sock.sendall(self._tls.take_sent())
            found += [decode_command(frame) for frame in self._splitter.feed(data)]
        return found

    def answer(self, request: Command) -> None:
        reply = Command(ResponseCode.SUCCESS, request.opaque, flag=1)
        parts = encode_command(reply)
        self.sock.sendall(b"".join(parts) if self._tls is None else self._tls.seal(parts))


@pytest.fixture
def leader() -> Iterator[Leader]:
    made = Leader()
    yield made
    made.links.close()
    made.listener.close()


def asked(host: str, *, body: bytes = b"", now_ms: int = 0, user: str = "") -> Asked:
    command = Command(RequestCode.SEND_MESSAGE_V2, 1, {"b": "orders"}, body)
    return Asked(cast("Connection", From((host, 1))), command, now_ms, user=user)


def test_one_owner_has_a_share_of_what_waits_and_leaves_room_for_others(leader: Leader) -> None:
    greedy = [leader.sends.hand_on(asked("192.0.2.1")) for _ in range(SHARE_REQUESTS + 1)]
    same_host = leader.sends.hand_on(asked("192.0.2.1", user="shop"))
    other = leader.sends.hand_on(asked("192.0.2.2"))
    served = leader.accept()
    came = served.requests(leader.links, SHARE_REQUESTS + 2)
    served.answer(came[0])
    leader.until_told(1)

    assert greedy == [True] * SHARE_REQUESTS + [False]
    assert (same_host, other) == (True, True)
    assert leader.sends.hand_on(asked("192.0.2.1"))
    assert not leader.sends.hand_on(asked("192.0.2.1"))


def test_the_share_counts_bytes_too(leader: Leader) -> None:
    large = bytes(SHARE_BYTES // 2)
    taken = [leader.sends.hand_on(asked("192.0.2.1", body=large)) for _ in range(3)]

    assert taken == [True, True, False]
    assert leader.sends.hand_on(asked("192.0.2.2", body=large))


def test_sends_hold_up_no_administrator(leader: Leader) -> None:
    for number in range(SHARE_REQUESTS * 4):
        assert leader.sends.hand_on(asked(f"192.0.2.{number % 4}"))
    full = leader.sends.hand_on(asked("192.0.2.9"))
    changed = leader.changes.hand_on(asked("192.0.2.9"))
    silent, served = leader.accept(), leader.accept()
    (request,) = served.requests(leader.links, 1)
    served.answer(request)

    assert (full, changed) == (False, True)
    assert leader.until_told(1) == [ResponseCode.SUCCESS]
    assert silent.requests(leader.links, SHARE_REQUESTS * 4)


def test_one_late_answer_costs_nobody_else_theirs(leader: Leader) -> None:
    late, quick, last = asked("192.0.2.1"), asked("192.0.2.2"), asked("192.0.2.3", now_ms=2_000)
    for one in (late, quick, last):
        assert leader.sends.hand_on(one)
    served = leader.accept()
    came = served.requests(leader.links, 3)
    served.answer(came[1])
    leader.until_told(1, now_ms=1_000)
    leader.links.turn(TIMEOUT_MS)
    served.answer(came[0])
    served.answer(came[2])
    codes = leader.until_told(3, now_ms=TIMEOUT_MS)

    assert [one for one, _ in leader.told] == [quick, late, last]
    assert codes[0] == codes[2] == ResponseCode.SUCCESS != codes[1]


def test_what_no_leader_would_take_costs_neither_others_nor_a_share(leader: Leader) -> None:
    served_before = asked("192.0.2.2")
    assert leader.sends.hand_on(served_before)
    large = asked("192.0.2.1")
    large.command.fields = {"b": "\N{LATIN SMALL LETTER E WITH ACUTE}" * (HEADER_SIZE_MAX // 6)}
    for _ in range(SHARE_REQUESTS + 1):
        with pytest.raises(ProtocolError, match="header is too large to be handed on"):
            leader.sends.hand_on(large)
    assert leader.sends.hand_on(asked("192.0.2.1"))
    served = leader.accept()
    came = served.requests(leader.links, 2)
    for request in came:
        served.answer(request)

    assert leader.until_told(2) == [ResponseCode.SUCCESS] * 2


def test_what_came_over_tls_goes_to_nobody_in_clear(leader: Leader) -> None:
    sealed = asked("192.0.2.1")._replace(
        connection=cast("Connection", From(("192.0.2.1", 1), is_sealed=True))
    )

    assert not leader.sends.hand_on(sealed)
    assert not leader.changes.hand_on(sealed)


def test_what_came_over_tls_goes_over_tls_where_the_members_authorities_are_known(
    leader: Leader, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    relay = leader.relay(Relayed.SENDS, Authorities(certificate, "remoting.members_ca_file"))
    clear = asked("192.0.2.1")
    sealed = clear._replace(connection=cast("Connection", From(("192.0.2.1", 1), is_sealed=True)))
    assert relay.hand_on(clear) and relay.hand_on(sealed)
    first = leader.accept()
    (in_clear,) = first.requests(leader.links, 1)
    served = leader.accept((certificate, key))
    (over_tls,) = served.requests(leader.links, 1)
    served.answer(over_tls)
    leader.until_told(1)

    assert in_clear.fields == over_tls.fields == {"b": "orders", RELAYED_KEY: "n1"}
    assert [one for one, _ in leader.told] == [sealed]


def test_what_came_over_tls_is_told_to_no_leader_that_nobody_has_certified(
    leader: Leader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    known, _ = make_certificate(mine)
    relay = leader.relay(Relayed.SENDS, Authorities(known, "remoting.members_ca_file"))
    sealed = asked("192.0.2.1")._replace(
        connection=cast("Connection", From(("192.0.2.1", 1), is_sealed=True))
    )
    assert relay.hand_on(sealed)
    served = leader.accept(make_certificate(other))

    assert served.requests(leader.links, 1) == []
    assert leader.until_told(1) == [ResponseCode.SERVICE_NOT_AVAILABLE]
    known.unlink()
    assert [relay.hand_on(sealed) for _ in range(2)] == [False, False]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and all("setting=remoting.members_ca_file" in line for line in told)
    assert "TLS failed" in told[0] and "certificates of authorities not read" in told[1]


def test_a_leader_that_answers_nobody_is_let_go_of(leader: Leader) -> None:
    assert leader.sends.hand_on(asked("192.0.2.1"))
    assert leader.sends.hand_on(asked("192.0.2.2", now_ms=2_000))
    served = leader.accept()
    served.requests(leader.links, 2)
    leader.links.turn(TIMEOUT_MS)

    assert len(leader.told) == 2
    assert served.sock.recv(1) == b""
    assert leader.sends.hand_on(asked("192.0.2.1"))
