"""A leader tells how far it is, and which broker RocketMQ would take it for."""

from __future__ import annotations

import pytest

from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import Grant, PublishedRole
from ledgermq.model.config.settings import LogKind
from ledgermq.model.ids import NodeId, Term
from ledgermq.sessions.leadership.takeover import Takeover, broker_id, takeover_of

TERM = Term(7)


def grant(
    role: PublishedRole = PublishedRole.LEADER, *, granted: bool = True, term: Term = TERM
) -> Grant:
    return Grant(term, granted, role, NodeId("n2"))


def stage(
    given: Grant,
    *told: BrokerCounter,
    committed: int = 7,
    term: int = 7,
    log: LogKind = LogKind.DLEDGER,
) -> Takeover:
    counters = [0] * 16
    for counter in told:
        counters[counter] = term
    return takeover_of(given, committed_term=committed, broker=counters, log=log)


def test_each_stage_follows_from_what_its_process_tells() -> None:
    told = (BrokerCounter.SERVES_TERM, BrokerCounter.TABLES_TERM, BrokerCounter.SERVICES_TERM)

    assert [
        stage(grant(granted=False), committed=6),
        stage(grant(), committed=6),
        stage(grant()),
        stage(grant(), *told[:1]),
        stage(grant(), *told[:2]),
        stage(grant(), *told),
    ] == [one for one in Takeover if one is not Takeover.NONE]


def test_what_was_told_of_an_earlier_term_counts_for_nothing() -> None:
    told = (BrokerCounter.SERVES_TERM, BrokerCounter.TABLES_TERM, BrokerCounter.SERVICES_TERM)

    assert stage(grant(), *told, term=6, committed=6) is Takeover.WRITER_GRANTED
    assert stage(grant(PublishedRole.FOLLOWER), *told) is Takeover.NONE


def test_a_plain_log_has_no_entry_to_wait_for() -> None:
    assert stage(grant(), committed=0, log=LogKind.COMMITLOG) is Takeover.COMMITTED


@pytest.mark.parametrize(
    ("self_id", "given", "told", "expected"),
    [
        (
            "n2",
            grant(term=Term(0), role=PublishedRole.FOLLOWER, granted=False),
            Takeover.NONE,
            -1,
        ),
        ("n0", grant(PublishedRole.FOLLOWER), Takeover.NONE, 1),
        ("n12", grant(PublishedRole.CANDIDATE), Takeover.NONE, 13),
        ("n2", grant(), Takeover.COMMITTED, 3),
        ("n2", grant(), Takeover.CAUGHT_UP, 0),
        ("n2", grant(), Takeover.SERVICES_GRANTED, 0),
    ],
)
def test_broker_ids_are_rocketmqs(
    self_id: str, given: Grant, told: Takeover, expected: int
) -> None:
    assert broker_id(self_id, given, told) == expected
