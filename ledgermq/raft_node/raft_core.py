"""Construction of the consensus core from a node's settings, and its ticks."""

from __future__ import annotations

from ledgermq.members.roster import roster_of
from ledgermq.model.config.settings import Settings
from ledgermq.model.ids import NO_INDEX, NodeId
from ledgermq.process.environment import Environment
from ledgermq.raft.core import RaftCore
from ledgermq.raft.timing import TICK_NS, FlowLimits, Timing
from ledgermq.raft_node.term_file import TermFile

MESSAGES_PER_TURN_MAX = 64
"""Most messages of peers that a raft process takes before it looks at anything else."""

_MIRRORED = Timing(heartbeat=1_000, election_min=10_000, election_max=20_000)
"""A mirror's leader is as far as another site, and nobody would be elected sooner."""


def timing_of(settings: Settings) -> Timing:
    """The core's timeouts, as the settings have them."""
    if settings.mirror.sources:
        return _MIRRORED
    return Timing(
        heartbeat=settings.raft.heartbeat_ms,
        election_min=settings.raft.election_timeout_min_ms,
        election_max=settings.raft.election_timeout_max_ms,
        transfer_max=settings.raft.transfer_timeout_ms,
        # Who is silent for that long has failed, and is not only slow: messages wait for it.
        witness_wait=2 * settings.raft.election_timeout_max_ms,
    )


def new_core(environment: Environment, term_file: TermFile) -> RaftCore:
    """The consensus core of this node, as the settings have it."""
    settings, page = environment.settings, environment.page
    return RaftCore(
        NodeId(settings.node.self_id),
        roster_of(settings).membership,
        term_file.state,
        commit=page.read_committed().index if page.has_committed() else NO_INDEX,
        entries_have_terms=settings.store.log.has_terms,
        timing=timing_of(settings),
        flow=FlowLimits(
            inflight_count_max=settings.raft.in_flight_frames,
            inflight_bytes_max=settings.raft.in_flight_bytes,
        ),
        preferred=tuple(NodeId(name) for name in settings.raft.preferred_leaders),
        seed=environment.clock.seed(),
        now=environment.clock.monotonic_ns() // TICK_NS,
    )
