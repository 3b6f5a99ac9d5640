"""What a core knows behind a run in which its writer led by itself."""

from __future__ import annotations

import pytest

from ledgermq.model.ids import NO_INDEX, Index
from ledgermq.raft.core import RaftCore
from ledgermq.raft.messages import Append, EntryId, RaftRole
from ledgermq.raft.timing import Timing
from tests.unit.raft.test_full_disk import TERM, B, C, leader

TAKEN = EntryId(TERM, Index(9))


def level() -> RaftCore:
    """A leader whose followers hold all that they were sent."""
    return leader(fit=True)


def tell(core: RaftCore, *, confirmed: int = 0, round_: int = 0) -> None:
    core.led_run_told(
        TAKEN, {B: Index(9), C: Index(5)}, held=Index(9), commit=Index(8), confirmed=confirmed,
        round_=round_,
    )  # fmt: skip


def test_a_run_may_begin_where_nothing_else_is_to_be_expected() -> None:
    core = level()

    assert core.leads_level
    assert {peer for peer, (_, is_drained) in core.matches().items() if is_drained} == {B, C}
    core.disk_is_full(True)
    assert not core.leads_level


def test_what_is_held_back_is_sent_when_no_run_has_come_of_it() -> None:
    core = level()
    core.hold_sends()
    held = core.entries_written(TAKEN).replicate
    sent = core.resume_sends().replicate

    assert (held, {one.peer for one in sent}) == ((), {B, C})


def test_a_core_knows_what_was_written_committed_and_answered() -> None:
    core = level()
    tell(core, confirmed=5_000, round_=40)

    assert (core.last, core.commit, core.round[0]) == (TAKEN, Index(8), 40)
    assert {peer: match for peer, (match, _) in core.matches().items()} == {B: 9, C: 5}
    assert core.alone_until() == 5_000 + Timing().lease


def test_behind_a_run_members_are_asked_where_their_logs_end_in_a_later_round() -> None:
    core = level()
    tell(core, round_=40)
    sent = core.led_run_ended({B, C}).send

    assert {peer for peer, _ in sent} == {B, C}
    for _, message in sent:
        assert isinstance(message, Append)
        assert (message.previous, message.commit, message.round) == (TAKEN, 8, 41)


def test_who_is_not_fed_hears_of_its_leader_meanwhile() -> None:
    core = level()
    effects = core.led_tick(core.deadline, {B})

    assert effects is not None
    assert [peer for peer, _ in effects.send] == [C]


@pytest.mark.parametrize("commit", [NO_INDEX, Index(8)])
def test_who_has_stepped_down_forgets_nothing_of_the_run(commit: Index) -> None:
    """By something that nobody asked the writer about: its version, say."""
    core = level()
    core.version_is_outdated()
    before = core.commit
    core.led_run_told(
        TAKEN, {B: Index(9)}, held=Index(9), commit=commit, confirmed=5_000, round_=40
    )

    assert core.role is RaftRole.FOLLOWER
    assert (core.last, core.commit) == (TAKEN, max(before, commit))
    assert core.alone_until() is None
    assert core.led_run_ended({B, C}).send == ()
