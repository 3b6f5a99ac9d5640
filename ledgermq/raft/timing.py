"""Timeouts of the core, in ticks, and its bounds of what is in flight."""

from __future__ import annotations

from dataclasses import dataclass

NEVER = 1 << 62
"""A tick that does not come."""

TICK_NS = 1_000_000
"""The core's time, with a process around it: milliseconds."""

ELECTION_DOUBLINGS_MAX = 5
"""Behind so many failed elections a member waits 32 times as long for the next one, and no
longer: who comes back may be awaited."""

TURN_OF_GONE = 30
"""Those whose connection to a leader has ended campaign one after the other, so many ticks apart:
long enough for an election, and too short to be noticed."""

LAST_WAITS = 3
"""After so many elections that were due and brought no leader a member campaigns, too, that leaves
it to others: one with a sick disk, or a witness with a log. Then nobody who could do it better is
there, or the witness's log is the longer one, and they cannot be elected without its vote."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times in ticks; with the process around the core a tick is a millisecond.

    The defaults are of a core alone: a node has those of its settings (``[raft]``).

    Attributes:
        heartbeat: a leader is heard of at least this often.
        election_min: without a word from the leader nobody campaigns sooner, but behind a
            connection that has ended; also as long as a follower refuses votes after it has heard
            of a leader.
        election_max: nobody waits longer, unless elections have failed; also as long as a leader
            leads without a majority.
        transfer_max: a hand-over that is not done by then is abandoned.
        preferred_wait: so long must one lead before it hands over to a more preferred one.
        witness_wait: so long is a voter waited for that neither answers nor takes more; then a
            witness without bodies counts in its place (docs/decisions/0085).
    """

    heartbeat: int = 50
    election_min: int = 300
    election_max: int = 600
    transfer_max: int = 1_000
    preferred_wait: int = 5_000
    witness_wait: int = 1_000

    def __post_init__(self) -> None:
        # Two heartbeats may be lost before anybody campaigns.
        assert 0 < 3 * self.heartbeat <= self.election_min < self.election_max, self
        assert self.transfer_max > 0 and self.preferred_wait > 0 and self.witness_wait > 0, self

    @property
    def lease(self) -> int:
        """Nobody else is elected for so long after the beginning of a round of heartbeats that a
        majority has answered.
        """
        return self.election_min * 7 // 16

    @property
    def lease_honoured(self) -> int:
        """Whoever has heard of a round elects nobody else for so long, whatever has become of the
        leader: the lease and two sevenths of it, for clocks that run a tenth faster or slower.
        """
        return self.election_min * 9 // 16


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Bounds of what is under way to one peer.

    Attributes:
        inflight_count_max: appends without a reply.
        inflight_bytes_max: their bytes: bandwidth times round trip, and several times that. The
            last append may pass it.
        lag_max: entries that a member may lack to count as caught up.
        is_held: no entries are sent now.
    """

    inflight_count_max: int = 64
    inflight_bytes_max: int = 32 << 20
    lag_max: int = 10_000
    is_held: bool = False
