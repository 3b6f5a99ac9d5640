"""A witness without bodies: it votes, knows of one entry, and never takes anything back."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.message_codec import decode_message, encode_message
from ledgermq.raft.messages import (
    Append,
    AppendReply,
    Attest,
    EntryId,
    HardState,
    Message,
    PreVote,
    PreVoteReply,
    TermRun,
    TimeoutNow,
    Vote,
    VoteRefusal,
    VoteReply,
)
from ledgermq.raft.roles.witness import KEEPS_NOTHING, WitnessCore, WitnessState
from ledgermq.raft.timing import Timing

N0, N1, W = NodeId("n0"), NodeId("n1"), NodeId("w0")
NOW = 10_000


def state(term: int, vote: NodeId | None, last: EntryId) -> WitnessState:
    return WitnessState(HardState(Term(term), vote), last)


def entry(term: int, index: int) -> EntryId:
    return EntryId(Term(term), Index(index))


def witness(kept: WitnessState = KEEPS_NOTHING) -> WitnessCore:
    return WitnessCore(W, kept, timing=Timing(), now=NOW)


def attest(term: int, last: int, round_: int = 1) -> Attest:
    return Attest(Term(term), Index(last), round_)


def told(
    core: WitnessCore, source: NodeId, message: Message, now: int = NOW
) -> tuple[WitnessState | None, list[Message]]:
    """What is made durable for one message, and the answers to it."""
    core.receive(now, source, decode_message(encode_message(message)))
    effects = core.close_turn()
    if effects is None:
        return None, []
    assert all(target == source for target, _ in effects.send)
    return effects.persist, [sent for _, sent in effects.send]


def test_it_answers_that_it_knows_of_an_entry_once_that_is_to_be_durable() -> None:
    core = witness()

    persist, (reply,) = told(core, N0, attest(3, 7, round_=5))

    assert persist == state(3, None, entry(3, 7))
    assert reply == AppendReply(Term(3), 5, True, Index(7), Index(7), None, False)


def test_one_sync_and_one_answer_are_enough_for_a_turn() -> None:
    core = witness()
    for last in (4, 7, 6):
        core.receive(NOW, N0, attest(3, last, round_=last))

    effects = core.close_turn()

    assert effects is not None
    assert effects.persist == state(3, None, entry(3, 7))
    assert [sent for _, sent in effects.send] == [
        AppendReply(Term(3), 7, True, Index(7), Index(7), None, False)
    ]
    assert core.close_turn() is None


def test_a_heartbeat_without_an_entry_is_answered_and_changes_nothing_of_a_known_term() -> None:
    core = witness(state(3, None, entry(2, 9)))

    persist, (reply,) = told(core, N0, attest(3, NO_INDEX))

    assert persist is None
    # What it knows of an older term proves nothing in this one.
    assert reply == AppendReply(Term(3), 1, True, NO_INDEX, NO_INDEX, None, False)


def test_a_leader_whose_time_is_over_is_told_so() -> None:
    core = witness(state(4, None, entry(4, 9)))

    persist, (reply,) = told(core, N0, attest(3, 20))

    assert persist is None
    assert isinstance(reply, AppendReply)
    assert (reply.term, reply.accepted) == (4, False)


def test_it_is_told_of_less_in_its_term_and_keeps_what_it_knows() -> None:
    core = witness(state(3, None, entry(3, 9)))

    persist, (reply,) = told(core, N0, attest(3, 5))

    assert persist is None
    assert isinstance(reply, AppendReply) and reply.held == 9


@pytest.mark.parametrize("index", [8, 9])
def test_a_later_leader_that_lacks_what_it_knows_of_ends_it(index: int) -> None:
    core = witness(state(3, None, entry(3, 9)))

    with pytest.raises(CorruptLogError, match="lacks what was committed"):
        core.receive(NOW, N1, attest(4, index))


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (entry(3, 9), None),
        (entry(4, 1), None),
        (entry(3, 8), VoteRefusal.LOG_BEHIND),
        (entry(2, 99), VoteRefusal.LOG_BEHIND),
    ],
)
def test_it_votes_for_who_has_what_it_knows_of(last: EntryId, reason: VoteRefusal | None) -> None:
    core = witness(state(3, N0, entry(3, 9)))

    asked = told(core, N1, PreVote(Term(5), last))
    persist, answers = told(core, N1, Vote(Term(5), last, transfer=False))

    assert asked == (None, [PreVoteReply(Term(3), Term(5), reason)])
    assert answers == [VoteReply(Term(5), Term(5), reason)]
    assert persist == state(5, N1 if reason is None else None, entry(3, 9))


def test_it_votes_once_a_term_also_after_a_restart() -> None:
    core = witness()
    persist, _ = told(core, N0, Vote(Term(2), entry(1, 3), transfer=False))
    assert persist is not None

    again = witness(persist)

    refused = [VoteReply(Term(2), Term(2), VoteRefusal.VOTED)]
    assert told(again, N1, Vote(Term(2), entry(1, 9), transfer=False)) == (None, refused)
    granted = [VoteReply(Term(2), Term(2), None)]
    assert told(again, N0, Vote(Term(2), entry(1, 3), transfer=False)) == (None, granted)


def test_it_does_not_vote_while_it_hears_of_a_leader_unless_that_one_hands_over() -> None:
    core = witness()
    told(core, N0, attest(3, 7))
    soon, late = NOW + Timing().election_min - 1, NOW + Timing().election_min

    hears = VoteReply(Term(3), Term(4), VoteRefusal.HEARS_LEADER)
    vote = Vote(Term(4), entry(3, 7), transfer=False)

    assert told(core, N1, vote, soon) == (None, [hears])
    persist, _ = told(core, N1, Vote(Term(4), entry(3, 7), transfer=True), soon)
    assert persist == state(4, N1, entry(3, 7))
    persist, _ = told(core, N0, Vote(Term(5), entry(3, 7), transfer=False), late)
    assert persist == state(5, N0, entry(3, 7))


def test_who_sends_it_entries_is_told_that_it_takes_none() -> None:
    core = witness()
    runs = (TermRun(Term(3), 4),)

    persist, (reply,) = told(core, N0, Append(Term(3), entry(0, -1), runs, Index(-1), 6))

    assert persist == state(3, None, KEEPS_NOTHING.last)
    assert reply == AppendReply(Term(3), 6, False, NO_INDEX, NO_INDEX, None, False)


def test_it_never_campaigns() -> None:
    core = witness()
    told(core, N0, attest(3, 7))

    assert told(core, N0, TimeoutNow(Term(3))) == (None, [])
    assert not hasattr(core, "tick")
