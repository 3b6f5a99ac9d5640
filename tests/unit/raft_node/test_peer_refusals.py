"""Refusals are told once, shown while they last, and bounded whoever sends."""

from __future__ import annotations

from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peer_presence import PEERS_MAX, REASONS_MAX, SHOWN_S, Refusals

N1 = NodeId("n1")


def test_a_reason_is_to_be_logged_once_for_each_peer() -> None:
    refusals = Refusals()
    notes = [
        refusals.note(peer, reason, 0.0)
        for peer, reason in [(N1, "a"), (N1, "a"), (N1, "b"), (N1, "a"), (NodeId("n2"), "a")]
    ]

    assert notes == [True, False, True, False, True]
    assert refusals.count == 5


def test_the_latest_reason_is_shown_until_it_was_not_repeated_for_a_while() -> None:
    refusals = Refusals()
    refusals.note(N1, "a", 0.0)
    refusals.note(N1, "b", 1.0)

    assert refusals.current(SHOWN_S) == {N1: "b"}
    assert refusals.current(1.0 + SHOWN_S) == {}


def test_a_refusal_after_an_admission_is_to_be_logged_again() -> None:
    refusals = Refusals()
    refusals.note(N1, "a", 0.0)

    assert (refusals.lift(N1), refusals.lift(N1)) == (True, False)
    assert refusals.current(0.0) == {}
    assert refusals.note(N1, "a", 1.0)


def test_a_flood_of_names_and_reasons_is_counted_and_not_kept() -> None:
    refusals = Refusals()
    names = sum(refusals.note(NodeId(f"x{at}"), "a", 0.0) for at in range(1_000))
    reasons = sum(refusals.note(NodeId("x0"), f"r{at}", 0.0) for at in range(1_000))

    assert (names, reasons) == (PEERS_MAX, REASONS_MAX - 1)
    assert len(refusals.current(0.0)) == PEERS_MAX
    assert refusals.count == 2_000
    # Old ones make room.
    assert refusals.note(N1, "a", SHOWN_S)
    assert refusals.current(SHOWN_S) == {N1: "a"}
