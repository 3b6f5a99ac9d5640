"""Members that lag get a share beside what producers wait for, and always come nearer."""

from __future__ import annotations

from ledgermq.model.ids import Position
from ledgermq.raft_node.replicated import LOOK_TICKS, PAUSE_TICKS, CatchUpPace

FRAME = 1 << 20
SHORT = FRAME // 4
WINDOW = 8 * FRAME
PER_TICK = 1_000
FAR = 1 << 40
"""Where the log ends: further away than any member comes here."""


class Leader:
    """A log that grows, and a member that takes whatever it is given at once."""

    def __init__(self) -> None:
        self.pace = CatchUpPace(
            window_bytes=WINDOW,
            frame_bytes=FRAME,
            short_frame_bytes=SHORT,
            bytes_per_s=PER_TICK * 1_000,
        )
        self.now = 1
        self.end = FAR
        self.reached = 0

    def begin(self, *, grow: int) -> None:
        """The member lags, and producers send: ``grow`` bytes a tick."""
        self.give(FRAME)
        for _ in range(LOOK_TICKS + 1):
            self.event(grow=grow, may_take=False)

    def give(self, size: int) -> None:
        begin, self.reached = self.reached, self.reached + size
        committed = Position(self.end)
        self.pace.sent("n2", begin=Position(begin), end=Position(self.reached), committed=committed)

    def event(
        self, *, grow: int, ticks: int = 1, is_awaited: bool = True, under_way: int = 1,
        may_take: bool = True,
    ) -> int:  # fmt: skip
        """The log has grown; bytes that the member is sent."""
        self.now += ticks
        self.end += grow
        self.pace.note(self.now, Position(self.end))
        before = self.reached
        while (
            may_take
            and self.pace.allows("n2", is_awaited=is_awaited, under_way=under_way)
            and self.reached - before < 64 * FRAME
        ):
            self.give(self.pace.frame_bytes("n2"))
            under_way += 1
        return self.reached - before


def test_who_is_near_is_never_held_back() -> None:
    leader = Leader()
    leader.reached = leader.end - WINDOW - FRAME
    leader.give(FRAME)

    assert not leader.pace.lagging
    assert leader.pace.allows("n2", is_awaited=True, under_way=31)
    assert leader.pace.frame_bytes("n2") == FRAME


def test_who_has_come_near_lags_no_more() -> None:
    leader = Leader()
    leader.begin(grow=FRAME)
    assert "n2" in leader.pace.lagging
    leader.reached = leader.end - WINDOW - FRAME
    leader.give(FRAME)

    assert not leader.pace.lagging


def test_beside_producers_it_gets_what_they_write_and_its_own_bytes() -> None:
    leader = Leader()
    leader.begin(grow=10_000)
    leader.event(grow=0)
    given = sum(leader.event(grow=10_000) for _ in range(1_000))

    wanted = 1_000 * (10_000 + PER_TICK)
    assert abs(given - wanted) <= FRAME


def test_what_one_event_brings_is_bounded_by_what_it_has_grown_by() -> None:
    leader = Leader()
    leader.begin(grow=10_000)

    assert leader.event(grow=10_000) <= WINDOW + 10_000 + PER_TICK + FRAME
    for _ in range(200):
        assert leader.event(grow=10_000) <= FRAME


def test_it_comes_nearer_however_much_a_single_event_brings() -> None:
    leader = Leader()
    leader.begin(grow=5 * FRAME)
    lacks = leader.end - leader.reached
    for _ in range(2_000):
        leader.event(grow=5 * FRAME)

    assert lacks - (leader.end - leader.reached) >= 2_000 * PER_TICK - FRAME


def test_what_it_did_not_take_in_time_is_not_given_at_once_later() -> None:
    leader = Leader()
    leader.begin(grow=FRAME)
    for _ in range(1_000):
        leader.event(grow=FRAME, may_take=False)

    assert leader.event(grow=0) <= WINDOW + FRAME + PER_TICK + FRAME


def test_what_was_written_while_nobody_lagged_counts_for_nobody() -> None:
    leader = Leader()
    leader.begin(grow=10_000)
    leader.reached = leader.end - FRAME
    leader.give(FRAME)
    leader.now += 1_000_000
    leader.end += FAR
    leader.begin(grow=10_000)

    assert leader.event(grow=10_000) <= WINDOW + 10_000 + PER_TICK + FRAME


def test_what_is_sent_again_is_not_held_against_it() -> None:
    leader = Leader()
    leader.begin(grow=10_000)
    leader.event(grow=FRAME)
    at = leader.reached
    for _ in range(20):
        leader.reached = at - 4 * FRAME
        for _ in range(4):
            leader.give(FRAME)

    assert leader.reached == at
    assert leader.event(grow=FRAME) >= FRAME


def test_while_nobody_waits_it_has_one_short_frame_under_way() -> None:
    leader = Leader()
    leader.begin(grow=10_000)
    while leader.event(grow=0, ticks=0):
        pass

    assert leader.event(grow=0, ticks=0, is_awaited=True, under_way=0) == 0
    assert leader.event(grow=0, ticks=0, is_awaited=False, under_way=1) == 0
    leader.pace.lagging["n2"].credit = -FRAME
    for _ in range(20):
        given = leader.event(grow=0, ticks=PAUSE_TICKS, is_awaited=False, under_way=0)
        assert given == SHORT
        assert leader.event(grow=0, ticks=1, is_awaited=False, under_way=0) == 0


def test_what_it_got_while_nobody_waited_is_hardly_held_against_it() -> None:
    leader = Leader()
    leader.begin(grow=10_000)
    for _ in range(100):
        leader.event(grow=0, ticks=PAUSE_TICKS, is_awaited=False, under_way=0)
    # More than a frame is not to be earned back.
    events = 1 + FRAME // (10_000 + PER_TICK)
    given = sum(leader.event(grow=10_000) for _ in range(events))

    assert given > 0


def test_idle_producers_hold_nobody_back() -> None:
    leader = Leader()
    leader.begin(grow=10_000)
    for _ in range(2 * LOOK_TICKS):
        leader.event(grow=10, may_take=False)

    assert leader.event(grow=10) == 64 * FRAME
    assert leader.pace.frame_bytes("n2") == FRAME


def test_a_log_that_stands_still_holds_nobody_back() -> None:
    """A majority that needs the member acknowledges nothing, and then nobody writes."""
    leader = Leader()
    leader.begin(grow=10_000)
    for _ in range(2):
        leader.event(grow=0, ticks=LOOK_TICKS, may_take=False)

    assert leader.event(grow=0, is_awaited=True) == 64 * FRAME


def test_another_term_begins_with_nobody_who_lags() -> None:
    leader = Leader()
    leader.begin(grow=10_000)
    leader.pace.forget()

    assert not leader.pace.lagging
    assert leader.pace.allows("n2", is_awaited=True, under_way=1)
