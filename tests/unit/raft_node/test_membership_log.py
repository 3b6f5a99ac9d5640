"""Memberships that a node remembers beside its log: of which orders, and of which entries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.members.roster import Roster, RosterEntry, RosterFile
from ledgermq.model.config.settings import NodeSection, Settings, StoreSection
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.membership import Membership
from ledgermq.raft_node.entries.entry_exchange import EntryExchange
from ledgermq.raft_node.entries.membership_log import MembershipLog
from ledgermq.store.files.store_paths import StorePaths

NODES = [NodeId(f"n{number}") for number in range(4)]
ADDRESSES = {node: f"10.0.0.{number}:1" for number, node in enumerate(NODES)}


def roster(*voters: NodeId, learner: NodeId | None = None) -> Roster:
    learners = frozenset() if learner is None else frozenset({learner})
    membership = Membership(frozenset(voters), learners)
    return Roster(membership, {node: ADDRESSES[node] for node in membership.members})


@pytest.fixture
def log(tmp_path: Path) -> MembershipLog:
    """Of a member of three."""
    peers = tuple(f"{node}-{ADDRESSES[node]}" for node in NODES[:3])
    settings = Settings(
        node=NodeSection(peers=peers), store=StoreSection(path_root_dir=tmp_path / "store")
    )
    exchange = EntryExchange(StorePaths.of(settings), None)
    return MembershipLog(tmp_path / "members", exchange, settings)


def test_an_address_of_an_order_that_was_refused_is_in_no_later_membership(
    log: MembershipLog, tmp_path: Path
) -> None:
    log.plan(NODES[3], "10.0.0.9:1")
    # The leader of that time has added it where it is.
    entry = RosterEntry(Index(7), Term(3), roster(*NODES[:3], learner=NODES[3]))
    RosterFile(tmp_path / "members").put(entry)
    later = MembershipLog(tmp_path / "members", log._exchange, log._settings)
    later.plan(NODES[3], "10.0.0.9:1")

    later.propose(Membership(frozenset(NODES)), term=Term(4), after=Index(8), now_ms=1)

    proposed = RosterFile(tmp_path / "members").proposed
    assert proposed is not None
    assert proposed.roster.addresses == ADDRESSES


def test_a_membership_that_the_writer_did_not_get_is_forgotten(
    log: MembershipLog, tmp_path: Path
) -> None:
    kept = RosterEntry(Index(7), Term(3), roster(*NODES[:3], learner=NODES[3]))
    file = RosterFile(tmp_path / "members")
    file.put(kept)
    file.put(replace(kept, index=Index(9), roster=roster(*NODES)))
    log = MembershipLog(tmp_path / "members", log._exchange, log._settings)

    log.dropped(Index(8))

    assert log.entries == RosterFile(tmp_path / "members").entries == (kept,)
    assert log.current == kept.roster
