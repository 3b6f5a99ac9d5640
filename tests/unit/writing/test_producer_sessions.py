"""Sessions of producers: whoever comes finds a place, and ends nobody else's session."""

from __future__ import annotations

import pytest

from ledgermq.broker.access import UserTable
from ledgermq.model.errors import BusyError
from ledgermq.model.settings import AccessSection, LimitsSection
from ledgermq.process.client_rights import AccessGate, ClientRights, Peer
from ledgermq.writing.producer_sessions import Ended, ProducerSessions, Session

GATE = AccessGate(AccessSection(), UserTable())


def session(instance: str = "", address: str = "10.0.0.5", in_flight: int = 0) -> Session:
    rights = ClientRights(GATE, Peer(address))
    return Session("client", instance, 0, rights, 1, in_flight)


def test_who_comes_when_all_places_are_taken_has_that_of_the_longest_idle() -> None:
    sessions = ProducerSessions(LimitsSection(sessions_max=3))
    for name in (b"a", b"b", b"c"):
        assert sessions.begin(name, session()) == Ended()
    sessions.use(b"a")

    assert sessions.begin(b"d", session()) == Ended(displaced=b"b")
    assert sorted(sessions) == [b"a", b"c", b"d"]
    assert sessions.begin(b"e", session()) == Ended(displaced=b"c")


def test_a_session_that_waits_for_an_answer_keeps_its_place() -> None:
    sessions = ProducerSessions(LimitsSection(sessions_max=2))
    sessions.begin(b"a", session(in_flight=1))
    sessions.begin(b"b", session())

    assert sessions.begin(b"c", session(in_flight=1)) == Ended(displaced=b"b")
    with pytest.raises(BusyError, match=r"wait for answers.*limit=2.*limits.sessions_max"):
        sessions.begin(b"d", session())
    assert list(sessions) == [b"a", b"c"]


def test_who_is_here_already_takes_no_place_from_others() -> None:
    sessions = ProducerSessions(LimitsSection(sessions_max=2))
    sessions.begin(b"a", session("one"))
    sessions.begin(b"b", session("two"))

    assert sessions.begin(b"a", session("one")) == Ended()
    assert sessions.begin(b"c", session("one")) == Ended(older=b"a")
    assert sorted(sessions) == [b"b", b"c"]


def test_a_client_that_connects_anew_ends_its_older_session() -> None:
    sessions = ProducerSessions(LimitsSection())
    sessions.begin(b"a", session("one"))

    assert sessions.begin(b"b", session("one")) == Ended(older=b"a")
    assert list(sessions) == [b"b"]


def test_nobody_ends_the_session_of_another_client_by_its_instance() -> None:
    sessions = ProducerSessions(LimitsSection())
    sessions.begin(b"a", session("one"))

    assert sessions.begin(b"b", session("one", address="10.0.0.6")) == Ended()
    assert sorted(sessions) == [b"a", b"b"]


def test_instances_are_forgotten_with_their_session() -> None:
    sessions = ProducerSessions(LimitsSection())
    for number in range(1_000):
        sessions.begin(b"a", session(f"instance-{number}"))
    sessions.end(b"a")

    assert len(sessions) == 0
    assert sessions._instances == {}
