"""Counters of each process, in the order of their slots in the cursor page.

Numbers are never reused for something else while a node runs; names are those of ``status``. What
is now, and not a count since the node was started, says so.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from enum import IntEnum

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

    (
        ELECTIONS, GRANTS, COMMITS, ORDERS_REFUSED, MESSAGES_SENT, MESSAGES_RECEIVED,
        MESSAGES_UNSENT, MESSAGES_REFUSED, ENTRIES_SENT, ENTRIES_RECEIVED,
        SHIPPED_BYTES_SENT, SHIPPED_BYTES_RECEIVED, MEMBERS_LEVEL, SCRUBBED_BYTES,
        DAMAGED_ENTRIES, REPAIRED_ENTRIES, REPAIRED_BYTES, LEANS_ON_WITNESS, COPIES,
        MIRRORED_BYTES, MIRROR_LAG_MESSAGES, MIRROR_LAG_BYTES, MIRROR_LAG_SECONDS,
    ) = range(23)  # fmt: skip


class WriterCounter(IntEnum):
    """Counters of the writer; ``SESSIONS`` is how many there are now."""

    (
        MESSAGES, BYTES, FRAMES, REFUSED, UNANSWERABLE, SESSIONS, RESENT_FOUND, TURNS,
        ENTRIES, DENIED, THROTTLED, DUPLICATES, CONNECTIONS_ENDED, SESSIONS_DISPLACED,
    ) = range(14)  # fmt: skip


class DispatcherCounter(IntEnum):
    """Counters of the dispatcher."""

    (
        MESSAGES, BYTES, SPANS, UNITS, KEYS, FLUSHES, SKIPPED, GAPS, TRUNCATED,
        SCRUBBED_BYTES, REPAIRED_UNITS, REPAIRED_INDEX_FILES,
    ) = range(12)  # fmt: skip


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

    (
        PULLS, MESSAGES, BYTES, HELD, REFUSED, CALLS, SESSIONS, UNANSWERABLE, WAKES,
        SERVES_TERM, TABLES_TERM, SERVICES_TERM, DENIED, THROTTLED, SLOW_REFUSED,
        ANSWERS_BYTES, DELAYED_WAITING, DELAYED_DELIVERED, TIMERS_WAITING,
        TIMERS_DELIVERED, TIMERS_CANCELLED, HALF_MESSAGES_WAITING,
        HALF_MESSAGES_DISCARDED, TRANSACTIONS_COMMITTED, TRANSACTIONS_ROLLED_BACK,
        TRANSACTIONS_CHECKED, MESSAGES_RETRIED, MESSAGES_DEAD, DEAD_LETTERS_REPLAYED,
        MESSAGES_FILTERED_OUT, EXPRESSIONS_EVALUATED, GROUPS_CONSUMING, GROUPS_DIFFERING,
        GROUP_CHANGES, MEMBERS, MEMBERS_LOST, QUEUE_LOCKS, OFFSET_COMMITS, MOVES_MENDED,
        SINK_BATCHES, SINK_ROWS, ARCHIVES, ARCHIVED_POSITION, REQUESTS_FAILED, TABLES_AT,
        TABLES_HELD_UP, CONNECTIONS_ENDED, HOLDS_DISPLACED, POISON_MESSAGES,
        SESSIONS_DISPLACED, CREATIONS_REFUSED, FEATURE_LEVEL, LEVEL_NEEDED,
        LEVEL_TO_ENABLE, REGISTERED_BROKERS, CLUSTER_CURRENT_AT, CLUSTER_RIGHTS_TOO_OLD,
    ) = range(57)  # fmt: skip


class ObserverCounter(IntEnum):
    """Counters of the observer; ``CONNECTIONS`` is how many there are now. What is refused was too
    much, too slow or no HTTP; what is denied had no token, or not the right. ``API_CHANGES`` are
    calls that changed something, ``API_FAILED`` those that the caller is not to blame for.
    ``MIRROR_BYTES`` were given to mirrors of other sites, and ``REQUESTS_FAILED`` have met a bug.
    """

    (
        CONNECTIONS, REQUESTS, SCRAPES, SCRAPES_FAILED, REFUSED, DENIED, API_CALLS,
        API_CHANGES, API_FAILED, MIRROR_BYTES, REQUESTS_FAILED,
    ) = range(11)  # fmt: skip


class GrpcCounter(IntEnum):
    """Counters of the process of RocketMQ 5's clients; ``CONNECTIONS`` is how many there are now,
    ``CLIENTS`` who has told its settings, or said that it lives. ``REFUSED`` connections found no
    room, or spoke no gRPC; ``DENIED`` calls had a wrong signature, or not the right. ``RELAYED``
    calls were handed on to the leader, and ``REQUESTS_FAILED`` have met a bug.
    """

    (
        CONNECTIONS, CLIENTS, CALLS, CALLS_REFUSED, MESSAGES, REFUSED, DENIED, THROTTLED,
        RELAYED, CHECKS, REQUESTS_FAILED,
    ) = range(11)  # fmt: skip


class ColdCounter(IntEnum):
    """Counters of the process that reads sealed pieces. ``AWAY_SINCE`` is the time, epoch s, since
    when the place refuses; 0: it does not. ``GONE`` pulls asked for messages that neither the log
    nor a piece has any more. Up to ``SEALED_POSITION`` pieces that were read through have all of
    the log; 0 while nobody knows.
    """

    (
        AWAY_SINCE, CACHE_BYTES, PULLS, PULLS_FAILED, GONE, MESSAGES, BYTES, PLACE_READS,
        PLACE_BYTES, PLACE_REFUSED, DAMAGED, READ_AHEAD, REQUESTS_FAILED, SEALED_POSITION,
    ) = range(14)  # fmt: skip


class SlavesCounter(IntEnum):
    """Counters of the process that sends the log to slaves of RocketMQ's. ``BEHIND_BYTES`` are
    those that the slave farthest behind has not reported yet; ``REFUSED`` connections found no
    room, or asked for what cannot be sent.
    """

    (
        CONNECTIONS, BEHIND_BYTES, BYTES, REFUSED, REQUESTS_FAILED,
    ) = range(5)  # fmt: skip


class ReceiptsCounter(IntEnum):
    """Counters of the process that makes checkpoints of receipts, where its node leads. Up to
    ``POSITION`` it has gone through the log, ``CHECKPOINT_AT`` is the time of the last checkpoint
    that it has made, epoch s, ``TREE_SIZE`` the stretches in its tree, and ``BEHIND_MS`` the age of
    its oldest message then; all are now, and 0 before the first one. ``FAILED`` could not be made,
    ``HURRIED`` were made at the cost of the others because they were late.
    """

    (
        POSITION, CHECKPOINT_AT, TREE_SIZE, CHECKPOINTS, MESSAGES, BYTES, FAILED, BEHIND_MS,
        HURRIED,
    ) = range(9)  # fmt: skip


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
    Role.RECEIPTS: _names(ReceiptsCounter),
}
