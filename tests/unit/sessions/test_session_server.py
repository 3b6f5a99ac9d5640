"""Sessions of a client socket: whoever comes finds a place, and ends nobody else's session."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ledgermq.ipc.counters import BrokerCounter, WriterCounter, no_counts
from ledgermq.ipc.loop import Pollable
from ledgermq.model.config.settings import AccessSection, LimitsSection, Settings
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    NoPermissionError,
    ProtocolError,
    QuotaError,
    StaleGenerationError,
)
from ledgermq.rules.access.access import UserTable
from ledgermq.sessions.client_rights import AccessGate, ClientRights, Peer
from ledgermq.sessions.leadership.standing import welcome_of
from ledgermq.sessions.session_server import EndedSessions, Session, SessionServer
from ledgermq.wire.header import Kind, decode_header
from ledgermq.wire.session import (
    LEADER,
    Standing,
    decode_refused,
    decode_role,
    decode_welcome,
    encode_hello,
)

GATE = AccessGate(AccessSection(), UserTable())
KINDS = pytest.mark.parametrize("kinds", [WriterCounter, BrokerCounter])


class Socket:
    """A client socket whose clients are played by the test."""

    source: Pollable = 0
    guards: Sequence[Pollable] = ()

    def __init__(self) -> None:
        self.peer = Peer()
        self.sent: list[tuple[bytes, list[bytes]]] = []
        self.gone: set[bytes] = set()
        self.limits: LimitsSection | None = None
        self.is_open = True

    def take_limits(self, limits: LimitsSection) -> None:
        self.limits = limits

    def send(self, identity: bytes, parts: Sequence[bytes]) -> bool:
        self.sent.append((identity, list(parts)))
        return identity not in self.gone

    def close(self) -> None:
        self.is_open = False


class Clients(SessionServer[Session]):
    """A server, and what it has done to its clients."""

    def __init__(
        self,
        limits: LimitsSection | None = None,
        kinds: type[WriterCounter | BrokerCounter] = WriterCounter,
    ) -> None:
        self.router = Socket()
        self.counts = no_counts()
        self.forgotten: list[bytes] = []
        super().__init__(
            self.router,  # type: ignore[arg-type]
            self.counts,
            kinds,
            limits or LimitsSection(),
            welcome=welcome_of(Settings(), 7, delay_levels=18),
            statuses={BusyError: "WINDOW_FULL"},
            forget=self.forgotten.append,
        )


def session(instance: str = "", address: str = "10.0.0.5", in_flight: int = 0) -> Session:
    return Session("client", ClientRights(GATE, Peer(address)), instance, in_flight)


def test_who_comes_when_all_places_are_taken_has_that_of_the_longest_idle() -> None:
    clients = Clients(LimitsSection(sessions_max=3))
    for name in (b"a", b"b", b"c"):
        assert clients.begin(name, session()) == EndedSessions()
    clients.router.peer = Peer("10.0.0.5")
    clients.used(b"a")

    assert clients.begin(b"d", session()) == EndedSessions(displaced=b"b")
    assert sorted(clients.sessions) == [b"a", b"c", b"d"]
    assert clients.begin(b"e", session()) == EndedSessions(displaced=b"c")
    assert clients.forgotten == [b"b", b"c"]
    assert clients.counts[WriterCounter.SESSIONS_DISPLACED] == 2


def test_a_session_that_waits_for_an_answer_keeps_its_place() -> None:
    clients = Clients(LimitsSection(sessions_max=2))
    clients.begin(b"a", session(in_flight=1))
    clients.begin(b"b", session())

    assert clients.begin(b"c", session(in_flight=1)) == EndedSessions(displaced=b"b")
    with pytest.raises(BusyError, match=r"wait for answers.*limit=2.*limits.sessions_max"):
        clients.begin(b"d", session())
    assert list(clients.sessions) == [b"a", b"c"]


def test_who_is_here_already_takes_no_place_from_others() -> None:
    clients = Clients(LimitsSection(sessions_max=2))
    clients.begin(b"a", session("one"))
    clients.begin(b"b", session("two"))

    assert clients.begin(b"a", session("one")) == EndedSessions()
    assert clients.begin(b"c", session("one")) == EndedSessions(older=b"a")
    assert sorted(clients.sessions) == [b"b", b"c"]


def test_a_client_that_connects_anew_ends_its_older_session() -> None:
    clients = Clients()
    clients.begin(b"a", session("one"))

    assert clients.begin(b"b", session("one")) == EndedSessions(older=b"a")
    assert list(clients.sessions) == [b"b"]


def test_nobody_ends_the_session_of_another_client_by_its_instance() -> None:
    clients = Clients()
    clients.begin(b"a", session("one", "10.0.0.5"))

    assert clients.begin(b"b", session("one", "10.0.0.6")) == EndedSessions()
    clients.end(b"b")
    assert clients.begin(b"c", session("one", "10.0.0.5")) == EndedSessions(older=b"a")


@KINDS
def test_who_has_no_session_or_has_taken_the_name_of_one_is_told_to_say_hello(
    kinds: type[WriterCounter | BrokerCounter],
) -> None:
    clients = Clients(kinds=kinds)
    known = session()
    clients.begin(b"a", known)
    clients.router.peer = Peer("10.0.0.5")
    mine = clients.used(b"a")
    with pytest.raises(StaleGenerationError, match="HELLO"):
        clients.used(b"b")
    clients.router.peer = Peer("10.0.0.6")
    with pytest.raises(StaleGenerationError, match="HELLO"):
        clients.used(b"a")

    assert mine is known
    assert list(clients.sessions) == [b"a"]


@KINDS
def test_a_welcome_says_who_leads_now_and_what_is_of_this_session(
    kinds: type[WriterCounter | BrokerCounter],
) -> None:
    clients = Clients(kinds=kinds)
    clients.begin(b"a", session())
    clients.tell_standing(Standing(LEADER, 3, "n1"))
    clients.welcome(b"a", 9, produce="ipc:///p", version=2)
    (_, role), (identity, parts) = clients.router.sent
    found = decode_welcome(parts[1])

    assert decode_role(role[1]) == found.standing == Standing(LEADER, 3, "n1")
    assert (identity, decode_header(parts[0]).kind) == (b"a", Kind.WELCOME)
    assert (decode_header(parts[0]).request_id, found.produce, found.version) == (9, "ipc:///p", 2)
    assert (found.generation, found.delay_levels) == (7, 18)
    assert clients.counts[kinds.SESSIONS] == 1


@KINDS
def test_refusals_are_counted_by_their_kind(kinds: type[WriterCounter | BrokerCounter]) -> None:
    clients = Clients(kinds=kinds)
    errors: list[LedgerError] = [BusyError("b"), NoPermissionError("n"), QuotaError("q")]
    for error in errors:
        clients.refuse(b"a", 4, error, record=1)
    refused = [decode_refused(parts[1]) for _, parts in clients.router.sent]

    assert refused[0].status == "WINDOW_FULL"
    assert [one.record for one in refused] == [1, 1, 1]
    counts = clients.counts
    assert (counts[kinds.REFUSED], counts[kinds.DENIED], counts[kinds.THROTTLED]) == (3, 1, 1)


@KINDS
def test_a_client_that_has_gone_loses_its_session(
    kinds: type[WriterCounter | BrokerCounter],
) -> None:
    clients = Clients(kinds=kinds)
    for name in (b"a", b"b"):
        clients.begin(name, session())
    clients.router.gone = {b"a", b"c"}
    for name in (b"a", b"b", b"c"):
        clients.send(name, [b"x"])

    assert (list(clients.sessions), clients.forgotten) == ([b"b"], [b"a"])
    assert (clients.counts[kinds.UNANSWERABLE], clients.counts[kinds.SESSIONS]) == (2, 1)


def test_a_hello_without_a_body_is_none() -> None:
    clients = Clients()
    head, body = encode_hello(1, client="c", library="l")
    with pytest.raises(ProtocolError, match="parts=1"):
        clients.hello([b"a", head])

    assert clients.hello([b"a", head, body]) == body


def test_limits_that_were_read_again_count_from_now_on() -> None:
    clients = Clients()
    limits = LimitsSection(sessions_max=1)
    clients.take_limits(limits)
    clients.begin(b"a", session())

    assert clients.begin(b"b", session()) == EndedSessions(displaced=b"a")
    assert clients.router.limits is limits
    clients.close()
    assert not clients.router.is_open


def test_instances_are_forgotten_with_their_session() -> None:
    clients = Clients()
    for number in range(1_000):
        clients.begin(b"a", session(f"instance-{number}"))
    clients.end(b"a")

    assert clients.sessions == {}
    assert clients._instances == {}
