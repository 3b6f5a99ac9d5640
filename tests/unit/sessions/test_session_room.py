"""Places of sessions: a bound for all, a share for a host, and operators always fit."""

from __future__ import annotations

import os

import pytest

from ledgermq.model.config.settings import LimitsSection
from ledgermq.model.errors import BusyError
from ledgermq.sessions.client_rights import Peer
from ledgermq.sessions.session_server import SessionRoom


def come(room: SessionRoom, identity: bytes, host: str) -> bytes | None:
    displaced = room.displaced(host)
    if displaced is not None:
        room.remove(displaced)
    room.add(identity, host)
    return displaced


def test_a_host_that_has_its_share_displaces_its_own_sessions() -> None:
    room = SessionRoom(LimitsSection(sessions_max=10, sessions_per_address=2))
    come(room, b"honest", "10.0.0.1")
    ended = [come(room, b"%d" % number, "10.0.0.9") for number in range(5)]

    assert ended == [None, None, b"0", b"1", b"2"]
    assert come(room, b"another", "10.0.0.1") is None


def test_where_all_places_are_taken_the_longest_idle_makes_way() -> None:
    room = SessionRoom(LimitsSection(sessions_max=2, sessions_per_address=2))
    come(room, b"a", "10.0.0.1")
    come(room, b"b", "10.0.0.2")
    room.use(b"a")

    assert come(room, b"c", "10.0.0.3") == b"b"


def test_an_operator_always_fits_and_displaces_nobody() -> None:
    operator = Peer(f"localhost:{os.geteuid()}:0:77").host
    room = SessionRoom(LimitsSection(sessions_max=1, sessions_per_address=1))
    come(room, b"a", "uid 1000")

    assert [come(room, b"operator %d" % number, operator) for number in range(3)] == [None] * 3
    assert len(room) == 1


def test_who_finds_only_sessions_that_wait_for_answers_is_told_the_setting() -> None:
    room = SessionRoom(LimitsSection(sessions_max=5, sessions_per_address=1))
    room.add(b"a", "10.0.0.1")

    with pytest.raises(BusyError, match=r"limit=1, setting='limits.sessions_per_address'"):
        room.displaced("10.0.0.1", is_idle=lambda _: False)


def test_processes_of_one_account_share_and_hosts_are_told_apart() -> None:
    peers = [Peer("localhost:4000:1:1"), Peer("localhost:4000:1:2"), Peer("localhost:4001:1:1")]

    assert [peer.host for peer in peers] == ["uid 4000", "uid 4000", "uid 4001"]
    assert Peer("10.0.0.1", "key").host == Peer("10.0.0.1").host == "10.0.0.1"
    assert Peer("localhost:0:0:1", "key").host == "localhost:0:0:1"
    assert Peer().host == "unknown"
