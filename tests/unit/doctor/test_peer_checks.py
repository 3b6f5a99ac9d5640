"""Members that are away, have other keys, or are other programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import zmq

from ledgermq.doctor import examination as checked
from ledgermq.doctor.examination import peer_checks, shake_hands
from ledgermq.doctor.finding import Weight
from ledgermq.members.peer_addresses import PeerAddress
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peer_sockets import PeerGuard, open_inbox
from ledgermq.sessions.keys.peer_keys import PeerKeys, load_keys
from tests.unit.doctor.subjects import by_check, listener, member_in, subject_in

N0, N1 = NodeId("n0"), NodeId("n1")


def keys_of(folder: Path) -> PeerKeys:
    keys = load_keys(member_in(folder).settings)
    assert keys is not None
    return keys


@contextmanager
def member(
    keys: PeerKeys | None, *, secret: bytes = b"", admits: bool = True
) -> Iterator[PeerAddress]:
    """The inbox of a member, as the raft process opens it, with a guard that is served."""
    with listener() as probe:
        address = PeerAddress("127.0.0.1", probe.getsockname()[1])
    with zmq.Context() as context:
        guard = PeerGuard(context, dict(keys.public) if keys and admits else {})
        own = None if keys is None else PeerKeys(secret or keys.secret, keys.public)
        inbox = open_inbox(context, address, keys=own, queued_max=8)
        ending = Event()

        def serve() -> None:
            while not ending.is_set():
                guard.serve()
                ending.wait(0.01)

        thread = Thread(target=serve)
        thread.start()
        try:
            yield address
        finally:
            ending.set()
            thread.join()
            inbox.close(0)
            guard.close()


def test_a_member_with_the_right_keys_is_reached(tmp_path: Path) -> None:
    keys = keys_of(tmp_path)
    secret = (tmp_path / "keys" / "n1" / "n1.secret").read_bytes().strip()
    with member(keys, secret=secret) as address:
        shake = shake_hands(N0, N1, address, keys)

    assert (shake.trouble, shake.is_connected) == ("", True)


def test_a_member_that_does_not_know_our_key_is_told(tmp_path: Path) -> None:
    keys = keys_of(tmp_path)
    secret = (tmp_path / "keys" / "n1" / "n1.secret").read_bytes().strip()
    with member(keys, secret=secret, admits=False) as address:
        shake = shake_hands(N0, N1, address, keys)

    assert shake.trouble == "it does not know this node's key"


def test_a_member_in_the_clear_is_told(tmp_path: Path) -> None:
    keys = keys_of(tmp_path)
    with member(None) as address:
        shake = shake_hands(N0, N1, address, keys)

    assert "raft.curve differs" in shake.trouble


def test_members_in_the_clear_reach_each_other() -> None:
    with member(None) as address:
        shake = shake_hands(N0, N1, address, None)

    assert shake.trouble == ""


@pytest.mark.slow
def test_a_member_that_is_away_fails_and_so_does_a_silent_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked, "HANDSHAKE_MAX_S", 0.2)
    with listener() as silent:
        port = silent.getsockname()[1]
        peers = ("n0-127.0.0.1:23911", f"n1-127.0.0.1:{port}", "n2-127.0.0.1:1")
        findings = by_check(peer_checks, member_in(tmp_path, node={"peers": peers}))
    silent_one, away = findings["peers.n1.reached"], findings["peers.n2.reached"]

    assert (silent_one.verdict, away.verdict) == (Weight.FAIL, Weight.FAIL)
    assert "connected, and no handshake" in silent_one.measured
    assert "not reached" in away.measured


@pytest.mark.parametrize(("copies", "leans"), [(2, False), (1, True)])
def test_a_witness_lacks_nothing_and_who_leans_on_it_is_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int, leans: bool
) -> None:
    monkeypatch.setattr(checked, "HANDSHAKE_MAX_S", 0.01)
    peers = ("n0-127.0.0.1:23911", "n1-127.0.0.1:1", "n2-127.0.0.1:1")
    known = {"behind": 7, "silent_ms": 20}
    raft = {
        "refusals": {}, "role": "leader", "bodiless": ["n2"],
        "peers": [{"node": name, **known} for name in ("n1", "n2")],
        "copies": copies, "leans_on_witness": leans,
    }  # fmt: skip
    subject = replace(member_in(tmp_path, node={"peers": peers}), raft=raft)
    findings = by_check(peer_checks, subject)

    assert "7 entries behind" in findings["peers.n1.admitted"].measured
    assert "without messages" in findings["peers.n2.admitted"].measured
    assert "peers.n2.clock" not in findings and "peers.n1.clock" in findings
    assert findings["peers.copies"].verdict is (Weight.WARN if leans else Weight.OK)
    assert f"{copies} members hold all" in findings["peers.copies"].measured


def test_without_keys_nobody_is_asked(tmp_path: Path) -> None:
    subject = member_in(tmp_path)
    (tmp_path / "keys" / "n0" / "n0.secret").unlink()
    findings = by_check(peer_checks, subject)

    assert list(findings) == ["peers.members"]
    assert findings["peers.members"].verdict is Weight.FAIL


def test_a_group_of_one_has_nobody_to_ask(tmp_path: Path) -> None:
    findings = by_check(peer_checks, subject_in(tmp_path))

    assert findings["peers.members"].verdict is Weight.OK


@pytest.mark.parametrize(
    ("silent_s", "too_old", "verdict"),
    [(None, 0, None), (1, 0, Weight.OK), (120, 0, Weight.WARN), (None, 1, Weight.FAIL)],
)
def test_whether_the_home_of_the_cluster_is_heard_is_told_where_there_is_one(
    tmp_path: Path, silent_s: int | None, too_old: int, verdict: Weight | None
) -> None:
    at_ms = 0 if silent_s is None else int(1_000 * (time.time() - silent_s))
    counters = {"cluster_current_at": at_ms, "cluster_rights_too_old": too_old}
    status: Any = {"counters": {"broker": counters}}
    found = by_check(peer_checks, replace(subject_in(tmp_path), status=status))

    assert (found["peers.home"].verdict if "peers.home" in found else None) == verdict
