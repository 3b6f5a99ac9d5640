"""A member with a sick disk leaves the lead to others, and leads where no other one could."""

from __future__ import annotations

from ledgermq.model.ids import Index, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.messages import Append, AppendReply, EntryId, PreVoteReply, RaftRole, VoteReply
from ledgermq.raft.timing import LAST_WAITS, Timing
from tests.unit.raft.test_full_disk import TERM, A, B, C, follower, leader

LAST = EntryId(Term(3), Index(0))


def answer(node: RaftCore, now: int, *, fit: bool) -> None:
    last = Index(1)
    for peer in (B, C):
        node.receive(now, peer, AppendReply(TERM, 1, True, last, last, None, fit))


def wait_in_vain(node: RaftCore) -> tuple[str, ...]:
    """An election is due; what the node notes of it."""
    return node.tick(node.deadline).notes


def test_a_leader_leads_on_while_no_other_disk_is_better_and_hands_over_then() -> None:
    node = leader(fit=False)
    sick = node.disk_is_sick(True)
    now = node.deadline
    answer(node, now, fit=False)
    waiting = node.tick(now)
    answer(node, now, fit=True)
    handing = node.tick(now + Timing().heartbeat)

    assert (sick.notes, waiting.notes) == ((), ())
    assert not sick.revoke and not waiting.revoke
    assert handing.notes == ("its disk is sick", "hands over to n1")
    assert handing.revoke


def test_a_member_campaigns_only_when_others_had_their_time() -> None:
    node = follower()
    node.disk_is_sick(True)
    before = [wait_in_vain(node) for _ in range(LAST_WAITS)]
    now = node.deadline
    asked = node.tick(now).send
    stood = node.receive(now, B, PreVoteReply(Term(3), TERM, None))
    node.receive(now, B, VoteReply(TERM, TERM, None))

    assert before == [("no candidate: its disk is sick",)] * LAST_WAITS
    assert [target for target, _ in asked] == [B, C]
    assert stood.persist is not None and stood.persist.vote == A
    assert node.role is RaftRole.LEADER


def test_who_hears_of_a_leader_waits_as_long_again() -> None:
    node = follower()
    node.disk_is_sick(True)
    for _ in range(LAST_WAITS):
        wait_in_vain(node)
    heard = node.receive(node.deadline - 1, B, Append(TERM, LAST, (), Index(-1), 1))
    ((_, told),) = heard.send

    assert isinstance(told, AppendReply) and not told.fit
    assert wait_in_vain(node) == ("no candidate: its disk is sick",)
