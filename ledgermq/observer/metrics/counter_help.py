"""Help of each counter of the cursor page: what it counts, and which of them are now."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from ledgermq.ipc.counters import (
    BrokerCounter,
    ColdCounter,
    DispatcherCounter,
    GrpcCounter,
    ObserverCounter,
    RaftCounter,
    ReceiptsCounter,
    SlavesCounter,
    WriterCounter,
)
from ledgermq.ipc.cursor_page import Role

_NOW: Mapping[Role, frozenset[IntEnum]] = {
    Role.RAFT: frozenset(
        {
            RaftCounter.MEMBERS_LEVEL,
            RaftCounter.DAMAGED_ENTRIES,
            RaftCounter.LEANS_ON_WITNESS,
            RaftCounter.COPIES,
            RaftCounter.MIRROR_LAG_MESSAGES,
            RaftCounter.MIRROR_LAG_BYTES,
            RaftCounter.MIRROR_LAG_SECONDS,
        }
    ),
    Role.WRITER: frozenset(
        {
            WriterCounter.SESSIONS,
        }
    ),
    Role.BROKER: frozenset(
        {
            BrokerCounter.HELD,
            BrokerCounter.SESSIONS,
            BrokerCounter.SERVES_TERM,
            BrokerCounter.TABLES_TERM,
            BrokerCounter.SERVICES_TERM,
            BrokerCounter.ANSWERS_BYTES,
            BrokerCounter.DELAYED_WAITING,
            BrokerCounter.TIMERS_WAITING,
            BrokerCounter.HALF_MESSAGES_WAITING,
            BrokerCounter.GROUPS_CONSUMING,
            BrokerCounter.GROUPS_DIFFERING,
            BrokerCounter.MEMBERS,
            BrokerCounter.ARCHIVES,
            BrokerCounter.ARCHIVED_POSITION,
            BrokerCounter.TABLES_AT,
            BrokerCounter.TABLES_HELD_UP,
            BrokerCounter.FEATURE_LEVEL,
            BrokerCounter.LEVEL_NEEDED,
            BrokerCounter.LEVEL_TO_ENABLE,
            BrokerCounter.REGISTERED_BROKERS,
            BrokerCounter.CLUSTER_CURRENT_AT,
            BrokerCounter.CLUSTER_RIGHTS_TOO_OLD,
        }
    ),
    Role.OBSERVER: frozenset(
        {
            ObserverCounter.CONNECTIONS,
        }
    ),
    Role.GRPC: frozenset({GrpcCounter.CONNECTIONS, GrpcCounter.CLIENTS}),
    Role.COLD: frozenset(
        {ColdCounter.AWAY_SINCE, ColdCounter.CACHE_BYTES, ColdCounter.SEALED_POSITION}
    ),
    Role.SLAVES: frozenset({SlavesCounter.CONNECTIONS, SlavesCounter.BEHIND_BYTES}),
    Role.RECEIPTS: frozenset(
        {
            ReceiptsCounter.POSITION,
            ReceiptsCounter.CHECKPOINT_AT,
            ReceiptsCounter.TREE_SIZE,
            ReceiptsCounter.BEHIND_MS,
        }
    ),
}
"""Those that are now, and no count since the node was started."""

SUPERVISOR_HELP = (
    ("children_died", "Processes that ended and were not asked to"),
    ("children_killed", "Processes that hung and were killed"),
    ("reloads", "Times that settings were read again"),
    ("watchdog_withheld", "Times that systemd's watchdog was not fed"),
)
"""Names and help of the supervisor's counters, in their order."""

COUNTER_HELP: Mapping[Role, Mapping[IntEnum, str]] = {
    Role.RAFT: {
        RaftCounter.ELECTIONS: "Terms and votes that were made durable",
        RaftCounter.GRANTS: "Times that the writer was given a term",
        RaftCounter.COMMITS: "Times that the commit index moved",
        RaftCounter.ORDERS_REFUSED: "Orders of other processes that were none",
        RaftCounter.MESSAGES_SENT: "Messages to members",
        RaftCounter.MESSAGES_RECEIVED: "Messages from members",
        RaftCounter.MESSAGES_UNSENT: "Messages to members that found no room, or no connection",
        RaftCounter.MESSAGES_REFUSED: "Messages from members that were none",
        RaftCounter.ENTRIES_SENT: "Entries sent to members",
        RaftCounter.ENTRIES_RECEIVED: "Entries received from a leader",
        RaftCounter.SHIPPED_BYTES_SENT: "Bytes of whole log files sent to members",
        RaftCounter.SHIPPED_BYTES_RECEIVED: "Bytes of whole log files received",
        RaftCounter.MEMBERS_LEVEL: "Feature level that all members have said that they know",
        RaftCounter.SCRUBBED_BYTES: "Bytes of the log that were read again and verified",
        RaftCounter.DAMAGED_ENTRIES: "Damaged entries that are known",
        RaftCounter.REPAIRED_ENTRIES: "Damaged entries that were repaired from other members",
        RaftCounter.REPAIRED_BYTES: "Bytes of entries that were repaired",
        RaftCounter.LEANS_ON_WITNESS: "1 while this leader leans on a witness without bodies",
        RaftCounter.COPIES: (
            "Members that hold all that is committed, beside a witness without bodies; 0: this node"
            " does not lead such a group"
        ),
        RaftCounter.MIRRORED_BYTES: "Bytes of answers from the source of this mirror",
        RaftCounter.MIRROR_LAG_MESSAGES: "Entries that this mirror lacks of its source",
        RaftCounter.MIRROR_LAG_BYTES: "Bytes that this mirror lacks of its source",
        RaftCounter.MIRROR_LAG_SECONDS: (
            "Whole seconds since this mirror had all, rounded up; 0: it is no mirror"
        ),
    },
    Role.WRITER: {
        WriterCounter.MESSAGES: "Messages stored for producers",
        WriterCounter.BYTES: "Bytes of messages stored for producers",
        WriterCounter.FRAMES: "Frames of producers",
        WriterCounter.REFUSED: "Frames that were refused",
        WriterCounter.UNANSWERABLE: "Answers whose producer had gone",
        WriterCounter.SESSIONS: "Producers' sessions",
        WriterCounter.RESENT_FOUND: "Messages that were sent again and found in the log",
        WriterCounter.TURNS: "Turns in which the writer looked for frames",
        WriterCounter.ENTRIES: "Entries written to the log",
        WriterCounter.DENIED: "Frames refused for want of a right",
        WriterCounter.THROTTLED: "Frames refused for a quota",
        WriterCounter.DUPLICATES: "Messages not stored again, since the log held their unique id",
        WriterCounter.CONNECTIONS_ENDED: "Producers' connections ended for what they held",
        WriterCounter.SESSIONS_DISPLACED: "Producers' sessions that ended to make room",
    },
    Role.DISPATCHER: {
        DispatcherCounter.MESSAGES: "Messages put into queues",
        DispatcherCounter.BYTES: "Bytes of the log that were dispatched",
        DispatcherCounter.SPANS: "Spans of the log that were dispatched",
        DispatcherCounter.UNITS: "Units written to queues",
        DispatcherCounter.KEYS: "Keys written to the index",
        DispatcherCounter.FLUSHES: "Syncs of queues and index",
        DispatcherCounter.SKIPPED: "Messages that could not be put into queues",
        DispatcherCounter.GAPS: "Gaps of queues that were met",
        DispatcherCounter.TRUNCATED: "Queues that were cut",
        DispatcherCounter.SCRUBBED_BYTES: "Bytes of queues and index compared with the log",
        DispatcherCounter.REPAIRED_UNITS: "Units of queues that were put right",
        DispatcherCounter.REPAIRED_INDEX_FILES: "Index files that were built again",
    },
    Role.BROKER: {
        BrokerCounter.PULLS: "Pulls of consumers",
        BrokerCounter.MESSAGES: "Messages given to consumers",
        BrokerCounter.BYTES: "Bytes given to consumers",
        BrokerCounter.HELD: "Pulls that wait for messages",
        BrokerCounter.REFUSED: "Requests that were refused",
        BrokerCounter.CALLS: "Calls of clients",
        BrokerCounter.SESSIONS: "Consumers' sessions",
        BrokerCounter.UNANSWERABLE: "Answers whose client had gone",
        BrokerCounter.WAKES: "Pulls that waited and were answered",
        BrokerCounter.SERVES_TERM: "Term in which it serves consumers; 0: in none",
        BrokerCounter.TABLES_TERM: "Term in which its tables are those of all; 0: in none",
        BrokerCounter.SERVICES_TERM: "Term in which its services may begin; 0: in none",
        BrokerCounter.DENIED: "Requests refused for want of a right",
        BrokerCounter.THROTTLED: "Requests refused for a quota",
        BrokerCounter.SLOW_REFUSED: "Requests refused for answers that are not read",
        BrokerCounter.ANSWERS_BYTES: "Bytes given to clients that have not read them",
        BrokerCounter.DELAYED_WAITING: "Messages of delay levels that wait",
        BrokerCounter.DELAYED_DELIVERED: "Messages of delay levels that were delivered",
        BrokerCounter.TIMERS_WAITING: "Messages with a time of their own that wait",
        BrokerCounter.TIMERS_DELIVERED: "Messages with a time of their own that were delivered",
        BrokerCounter.TIMERS_CANCELLED: "Messages with a time of their own that were cancelled",
        BrokerCounter.HALF_MESSAGES_WAITING: "Messages of transactions without an end",
        BrokerCounter.HALF_MESSAGES_DISCARDED: "Messages of transactions that nobody answered for",
        BrokerCounter.TRANSACTIONS_COMMITTED: "Transactions that were committed",
        BrokerCounter.TRANSACTIONS_ROLLED_BACK: "Transactions that were rolled back",
        BrokerCounter.TRANSACTIONS_CHECKED: "Questions to producers about transactions",
        BrokerCounter.MESSAGES_RETRIED: "Messages given back, to come again",
        BrokerCounter.MESSAGES_DEAD: "Messages that became dead letters",
        BrokerCounter.DEAD_LETTERS_REPLAYED: "Dead letters that were replayed",
        BrokerCounter.MESSAGES_FILTERED_OUT: "Messages passed over by tags or an expression",
        BrokerCounter.EXPRESSIONS_EVALUATED: "Messages that an expression has looked at",
        BrokerCounter.GROUPS_CONSUMING: "Groups that consume",
        BrokerCounter.GROUPS_DIFFERING: "Groups whose members want different things",
        BrokerCounter.GROUP_CHANGES: "Members of groups that came, went or changed",
        BrokerCounter.MEMBERS: "Members of groups",
        BrokerCounter.MEMBERS_LOST: "Members of groups that were not heard of any more",
        BrokerCounter.QUEUE_LOCKS: "Locks of queues that were given or renewed",
        BrokerCounter.OFFSET_COMMITS: "Commits of offsets",
        BrokerCounter.MOVES_MENDED: "Groups of moved messages that a crash had cut",
        BrokerCounter.SINK_BATCHES: "Batches of sinks that were committed",
        BrokerCounter.SINK_ROWS: "Rows of sinks that are messages now",
        BrokerCounter.ARCHIVES: "Archives that retention waits for",
        BrokerCounter.ARCHIVED_POSITION: "Position up to which the last archive has the log",
        BrokerCounter.REQUESTS_FAILED: "Requests that met a bug",
        BrokerCounter.TABLES_AT: "Commands that the tables have, plus one; 0: it is starting",
        BrokerCounter.TABLES_HELD_UP: "1 while damage or a newer command holds the tables up",
        BrokerCounter.CONNECTIONS_ENDED: "Clients' connections that were ended for what they held",
        BrokerCounter.HOLDS_DISPLACED: "Pulls that ended before their time to make room",
        BrokerCounter.POISON_MESSAGES: "Stored messages of which nothing could be made",
        BrokerCounter.SESSIONS_DISPLACED: "Consumers' sessions that ended to make room",
        BrokerCounter.CREATIONS_REFUSED: "Topics and groups that were not created, for a limit",
        BrokerCounter.FEATURE_LEVEL: "Feature level in force",
        BrokerCounter.LEVEL_NEEDED: "Feature level that the log needs and this version lacks",
        BrokerCounter.LEVEL_TO_ENABLE: "Feature level that all members know and nobody has enabled",
        BrokerCounter.REGISTERED_BROKERS: "Brokers of other groups whose routes this node tells",
        BrokerCounter.CLUSTER_CURRENT_AT: (
            "Epoch milliseconds at which a group's rows of its cluster were all that the home had;"
            " 0: told by another node, or of the home"
        ),
        BrokerCounter.CLUSTER_RIGHTS_TOO_OLD: (
            "1 while the cluster's users are refused: their rights are older than"
            " access.cluster_rights_max_age_s"
        ),
    },
    Role.OBSERVER: {
        ObserverCounter.CONNECTIONS: "HTTP connections",
        ObserverCounter.REQUESTS: "HTTP requests",
        ObserverCounter.SCRAPES: "Scrapes that were answered",
        ObserverCounter.SCRAPES_FAILED: "Scrapes that failed",
        ObserverCounter.REFUSED: "What was too much, too slow or no HTTP",
        ObserverCounter.DENIED: "HTTP requests without a token, or the right",
        ObserverCounter.API_CALLS: "Calls of the API",
        ObserverCounter.API_CHANGES: "Calls of the API that changed something",
        ObserverCounter.API_FAILED: "Calls of the API that failed for want of an answer",
        ObserverCounter.MIRROR_BYTES: "Bytes given to mirrors of other sites",
        ObserverCounter.REQUESTS_FAILED: "HTTP requests that met a bug",
    },
    Role.GRPC: {
        GrpcCounter.CONNECTIONS: "Connections of gRPC clients",
        GrpcCounter.CLIENTS: "gRPC clients that are known by their settings or heartbeats",
        GrpcCounter.CALLS: "Calls of gRPC clients",
        GrpcCounter.CALLS_REFUSED: "Calls of gRPC clients that were answered with a refusal",
        GrpcCounter.MESSAGES: "Messages of gRPC clients that were stored",
        GrpcCounter.REFUSED: "Connections of gRPC clients that found no room, or spoke no gRPC",
        GrpcCounter.DENIED: "Calls of gRPC clients with a wrong signature, or without the right",
        GrpcCounter.THROTTLED: "Calls of gRPC clients that a quota has refused",
        GrpcCounter.RELAYED: "Calls of gRPC clients that were handed on to the leader",
        GrpcCounter.CHECKS: "Checks of transactions that gRPC clients were asked to answer",
        GrpcCounter.REQUESTS_FAILED: "Calls of gRPC clients that met a bug",
    },
    Role.COLD: {
        ColdCounter.AWAY_SINCE: "When the place of sealed pieces began to refuse, epoch s; 0: no",
        ColdCounter.CACHE_BYTES: "Bytes of pieces in the cache on the disk",
        ColdCounter.PULLS: "Pulls of messages that the log has no more",
        ColdCounter.PULLS_FAILED: "Such pulls that were answered with an error",
        ColdCounter.GONE: "Such pulls of messages that no piece has either",
        ColdCounter.MESSAGES: "Messages given out of pieces",
        ColdCounter.BYTES: "Bytes of such messages",
        ColdCounter.PLACE_READS: "Reads from the place of pieces: requests, in a bucket",
        ColdCounter.PLACE_BYTES: "Bytes read from the place of pieces",
        ColdCounter.PLACE_REFUSED: "Reads that the place of pieces refused or did not answer",
        ColdCounter.DAMAGED: "Reads of pieces that are not what was sealed",
        ColdCounter.READ_AHEAD: "Row groups of pieces that were read ahead of their readers",
        ColdCounter.REQUESTS_FAILED: "Pulls out of pieces that met a bug",
        ColdCounter.SEALED_POSITION: "Position up to which pieces have the log; 0: not known",
    },
    Role.SLAVES: {
        SlavesCounter.CONNECTIONS: "RocketMQ's slaves that follow the node",
        SlavesCounter.BEHIND_BYTES: "Bytes of the log that the slave farthest behind lacks",
        SlavesCounter.BYTES: "Bytes of the log that were sent to slaves",
        SlavesCounter.REFUSED: "Connections of slaves that were refused",
        SlavesCounter.REQUESTS_FAILED: "Connections of slaves that met a bug",
    },
    Role.RECEIPTS: {
        ReceiptsCounter.POSITION: "Position up to which this node has gone through for receipts",
        ReceiptsCounter.CHECKPOINT_AT: "When this node made its last checkpoint, epoch s; 0: none",
        ReceiptsCounter.TREE_SIZE: "Stretches in the tree of that checkpoint",
        ReceiptsCounter.CHECKPOINTS: "Checkpoints of receipts that were made",
        ReceiptsCounter.MESSAGES: "Messages that were put into the tree of receipts",
        ReceiptsCounter.BYTES: "Bytes of such messages",
        ReceiptsCounter.FAILED: "Checkpoints of receipts that could not be made",
        ReceiptsCounter.BEHIND_MS: "Age of the oldest message of that checkpoint when it was made",
        ReceiptsCounter.HURRIED: "Checkpoints that were late, and took processors from the others",
    },
}
"""Help for every counter of ``ipc/counters.py`` but those of the supervisor; by their processes,
for numbers of different enumerations are equal. Port processes have those of the broker."""


def is_now(role: Role, counter: IntEnum) -> bool:
    """Whether a counter of the process is now, and no count since the node was started."""
    return counter in _NOW.get(role, ())
