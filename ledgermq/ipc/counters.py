"""Counters of each process, in the order of their slots in the cursor page.

Numbers are never reused for something else while a node runs; names are those of ``status``. What
is now, and not a count since the node was started, says so.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from enum import IntEnum, auto

from ledgermq.ipc.cursor_page import COUNTERS_MAX, PORTS, Role

Counts = MutableSequence[int] | memoryview
"""The counters of one process, by their numbers."""


def no_counts() -> Counts:
    """Counters that nobody reads."""
    return [0] * COUNTERS_MAX


class RaftCounter(IntEnum):
    """Counters of the raft process.

    ``MEMBERS_LEVEL`` is now: the highest feature level that all members have said that they know.
    So are ``LEANS_ON_WITNESS`` and ``COPIES``, of a leader whose group has a witness without
    bodies: whether it counts in the place of a member, and how many hold all that is committed.
    So are the lags of a mirror; on other nodes, they and ``MIRRORED_BYTES`` are 0.
    """

    ELECTIONS = 0
    GRANTS = auto()
    COMMITS = auto()
    ORDERS_REFUSED = auto()
    MESSAGES_SENT = auto()
    MESSAGES_RECEIVED = auto()
    MESSAGES_UNSENT = auto()
    MESSAGES_REFUSED = auto()
    ENTRIES_SENT = auto()
    ENTRIES_RECEIVED = auto()
    SHIPPED_BYTES_SENT = auto()
    SHIPPED_BYTES_RECEIVED = auto()
    MEMBERS_LEVEL = auto()
    SCRUBBED_BYTES = auto()
    DAMAGED_ENTRIES = auto()
    REPAIRED_ENTRIES = auto()
    REPAIRED_BYTES = auto()
    LEANS_ON_WITNESS = auto()
    COPIES = auto()
    MIRRORED_BYTES = auto()
    MIRROR_LAG_MESSAGES = auto()
    MIRROR_LAG_BYTES = auto()
    MIRROR_LAG_SECONDS = auto()


class WriterCounter(IntEnum):
    """Counters of the writer; ``SESSIONS`` is how many there are now."""

    MESSAGES = 0
    BYTES = auto()
    FRAMES = auto()
    REFUSED = auto()
    UNANSWERABLE = auto()
    SESSIONS = auto()
    RESENT_FOUND = auto()
    TURNS = auto()
    ENTRIES = auto()
    DENIED = auto()
    THROTTLED = auto()
    DUPLICATES = auto()
    CONNECTIONS_ENDED = auto()
    SESSIONS_DISPLACED = auto()


class DispatcherCounter(IntEnum):
    """Counters of the dispatcher."""

    MESSAGES = 0
    BYTES = auto()
    SPANS = auto()
    UNITS = auto()
    KEYS = auto()
    FLUSHES = auto()
    SKIPPED = auto()
    GAPS = auto()
    TRUNCATED = auto()
    SCRUBBED_BYTES = auto()
    REPAIRED_UNITS = auto()
    REPAIRED_INDEX_FILES = auto()


class BrokerCounter(IntEnum):
    """Counters of the broker; port processes have the same, and count what they do themselves.

    ``HELD`` and ``SESSIONS``, and ``ANSWERS_BYTES``, what clients were given and have not read, are
    now. The terms are those in which it serves consumers, its tables are those of all, and its
    services may begin; 0 before (``sessions/leadership/takeover.py``).

    What waits, the groups that are consuming, those whose members differ, and the members are now,
    looked at every two seconds; half messages, groups and members at the leader alone. What was
    delivered, retried and so on is counted by who led at that moment, once it was in the log.
    ``MESSAGES_FILTERED_OUT`` were passed over by tags or an expression. ``ARCHIVES`` that retention
    waits for, and the position up to which the last one of them has the log, are now. So is
    the queue offset up to which commands are applied to the tables, plus one (0: it is not known
    where the tables stand), and whether a damaged place holds them up. ``POISON_MESSAGES`` is how
    often nothing could be made of a stored message, by a filter or a service, and it was passed
    over. ``FEATURE_LEVEL`` is that in force, ``LEVEL_NEEDED`` that which the next command of the
    log needs where this version does not know it, else 0; ``LEVEL_TO_ENABLE`` is one that all
    members know and that only an operator puts in force, told by who leads, else 0.
    ``REGISTERED_BROKERS`` are those of other groups whose routes this node tells, now.
    ``CLUSTER_CURRENT_AT`` is when the rows of the cluster were all that its home had, epoch ms;
    told by who leads a group that is not the home, else 0. Before a member of the home has said so
    it is when this node began to ask. ``CLUSTER_RIGHTS_TOO_OLD`` is 1 while the cluster's users are
    refused, since nobody has heard the home for too long.
    """

    PULLS = 0
    MESSAGES = auto()
    BYTES = auto()
    HELD = auto()
    REFUSED = auto()
    CALLS = auto()
    SESSIONS = auto()
    UNANSWERABLE = auto()
    WAKES = auto()
    SERVES_TERM = auto()
    TABLES_TERM = auto()
    SERVICES_TERM = auto()
    DENIED = auto()
    THROTTLED = auto()
    SLOW_REFUSED = auto()
    ANSWERS_BYTES = auto()
    DELAYED_WAITING = auto()
    DELAYED_DELIVERED = auto()
    TIMERS_WAITING = auto()
    TIMERS_DELIVERED = auto()
    TIMERS_CANCELLED = auto()
    HALF_MESSAGES_WAITING = auto()
    HALF_MESSAGES_DISCARDED = auto()
    TRANSACTIONS_COMMITTED = auto()
    TRANSACTIONS_ROLLED_BACK = auto()
    TRANSACTIONS_CHECKED = auto()
    MESSAGES_RETRIED = auto()
    MESSAGES_DEAD = auto()
    DEAD_LETTERS_REPLAYED = auto()
    MESSAGES_FILTERED_OUT = auto()
    EXPRESSIONS_EVALUATED = auto()
    GROUPS_CONSUMING = auto()
    GROUPS_DIFFERING = auto()
    GROUP_CHANGES = auto()
    MEMBERS = auto()
    MEMBERS_LOST = auto()
    QUEUE_LOCKS = auto()
    OFFSET_COMMITS = auto()
    MOVES_MENDED = auto()
    SINK_BATCHES = auto()
    SINK_ROWS = auto()
    ARCHIVES = auto()
    ARCHIVED_POSITION = auto()
    REQUESTS_FAILED = auto()
    TABLES_AT = auto()
    TABLES_HELD_UP = auto()
    CONNECTIONS_ENDED = auto()
    HOLDS_DISPLACED = auto()
    POISON_MESSAGES = auto()
    SESSIONS_DISPLACED = auto()
    CREATIONS_REFUSED = auto()
    FEATURE_LEVEL = auto()
    LEVEL_NEEDED = auto()
    LEVEL_TO_ENABLE = auto()
    REGISTERED_BROKERS = auto()
    CLUSTER_CURRENT_AT = auto()
    CLUSTER_RIGHTS_TOO_OLD = auto()


class ObserverCounter(IntEnum):
    """Counters of the observer; ``CONNECTIONS`` is how many there are now. What is refused was too
    much, too slow or no HTTP; what is denied had no token, or not the right. ``API_CHANGES`` are
    calls that changed something, ``API_FAILED`` those that the caller is not to blame for.
    ``MIRROR_BYTES`` were given to mirrors of other sites, and ``REQUESTS_FAILED`` have met a bug.
    """

    CONNECTIONS = 0
    REQUESTS = auto()
    SCRAPES = auto()
    SCRAPES_FAILED = auto()
    REFUSED = auto()
    DENIED = auto()
    API_CALLS = auto()
    API_CHANGES = auto()
    API_FAILED = auto()
    MIRROR_BYTES = auto()
    REQUESTS_FAILED = auto()


class GrpcCounter(IntEnum):
    """Counters of the process of RocketMQ 5's clients; ``CONNECTIONS`` is how many there are now,
    ``CLIENTS`` who has told its settings, or said that it lives. ``REFUSED`` connections found no
    room, or spoke no gRPC; ``DENIED`` calls had a wrong signature, or not the right. ``RELAYED``
    calls were handed on to the leader, and ``REQUESTS_FAILED`` have met a bug.
    """

    CONNECTIONS = 0
    CLIENTS = auto()
    CALLS = auto()
    CALLS_REFUSED = auto()
    MESSAGES = auto()
    REFUSED = auto()
    DENIED = auto()
    THROTTLED = auto()
    RELAYED = auto()
    CHECKS = auto()
    REQUESTS_FAILED = auto()


class ColdCounter(IntEnum):
    """Counters of the process that reads sealed pieces. ``AWAY_SINCE`` is the time, epoch s, since
    when the place refuses; 0: it does not. ``GONE`` pulls asked for messages that neither the log
    nor a piece has any more. Up to ``SEALED_POSITION`` pieces that were read through have all of
    the log; 0 while nobody knows.
    """

    AWAY_SINCE = 0
    CACHE_BYTES = auto()
    PULLS = auto()
    PULLS_FAILED = auto()
    GONE = auto()
    MESSAGES = auto()
    BYTES = auto()
    PLACE_READS = auto()
    PLACE_BYTES = auto()
    PLACE_REFUSED = auto()
    DAMAGED = auto()
    READ_AHEAD = auto()
    REQUESTS_FAILED = auto()
    SEALED_POSITION = auto()


class SlavesCounter(IntEnum):
    """Counters of the process that sends the log to slaves of RocketMQ's. ``BEHIND_BYTES`` are
    those that the slave farthest behind has not reported yet; ``REFUSED`` connections found no
    room, or asked for what cannot be sent.
    """

    CONNECTIONS = 0
    BEHIND_BYTES = auto()
    BYTES = auto()
    REFUSED = auto()
    REQUESTS_FAILED = auto()


def _names(counters: type[IntEnum]) -> tuple[str, ...]:
    assert [counter.value for counter in counters] == list(range(len(counters))), counters
    assert len(counters) <= COUNTERS_MAX, counters
    return tuple(counter.name.lower() for counter in counters)


COUNTER_NAMES: Mapping[Role, tuple[str, ...]] = {
    Role.SUPERVISOR: ("children_died", "children_killed", "reloads", "watchdog_withheld"),
    Role.RAFT: _names(RaftCounter),
    Role.WRITER: _names(WriterCounter),
    Role.DISPATCHER: _names(DispatcherCounter),
    Role.BROKER: _names(BrokerCounter),
    **dict.fromkeys(PORTS, _names(BrokerCounter)),
    Role.OBSERVER: _names(ObserverCounter),
    Role.GRPC: _names(GrpcCounter),
    Role.COLD: _names(ColdCounter),
    Role.SLAVES: _names(SlavesCounter),
}
