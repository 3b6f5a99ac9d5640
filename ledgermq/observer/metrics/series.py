"""Series of ``/metrics``: names, types, help and labels, each once.

What is not in ``CATALOG`` is not told, and docs/operating/metrics.md lists it all: a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from ledgermq.ipc.cursor_page import Role
from ledgermq.observer.metrics.counter_help import (
    COUNTER_HELP,
    SUPERVISOR_HELP,
    is_now,
)


class SeriesKind(StrEnum):
    """Type in the exposition format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Series:
    """One family of series; a counter's name ends with ``_total``."""

    name: str
    kind: SeriesKind
    help: str
    labels: tuple[str, ...] = ()


def counter_name(role: Role, counter: IntEnum) -> str:
    """Name of a counter of the page."""
    suffix = "" if is_now(role, counter) else "_total"
    return f"ledgermq_{role.title}_{counter.name.lower()}{suffix}"


def _gauge(name: str, text: str, *labels: str) -> Series:
    return Series(name, SeriesKind.GAUGE, text, labels)


def _counter(name: str, text: str, *labels: str) -> Series:
    return Series(name, SeriesKind.COUNTER, text, labels)


def _of_counters() -> Iterator[Series]:
    for name, text in SUPERVISOR_HELP:
        yield _counter(f"ledgermq_supervisor_{name}_total", text)
    for role, helps in COUNTER_HELP.items():
        labels = ("process",) if role is Role.BROKER else ()
        for counter, text in helps.items():
            kind = SeriesKind.GAUGE if is_now(role, counter) else SeriesKind.COUNTER
            yield Series(counter_name(role, counter), kind, text, labels)


_OF_NODE = (
    _gauge("ledgermq_build_info", "Version of the program; always 1", "version", "python"),
    _gauge("ledgermq_kernels_compiled", "1 where the loops over messages are compiled, 0: plain"),
    _gauge("ledgermq_node_info", "Names of the node; always 1",
           "cluster", "broker", "group", "node"),
    _gauge("ledgermq_start_time_seconds", "When the node was started, since the epoch"),
    _gauge("ledgermq_ready", "1 while the node serves"),
    _gauge("ledgermq_leads", "1 while it leads, and answers producers and consumers"),
    _gauge("ledgermq_not_ready_reason", "1 for each reason why the node does not serve", "code"),
    _gauge("ledgermq_raft_role", "1 for the role that the node has", "role"),
    _gauge("ledgermq_raft_term", "Term of the node"),
    _gauge("ledgermq_raft_majority_age_seconds", "Time since a majority was heard of last"),
    _gauge("ledgermq_raft_disk_sick", "1 while raft takes the disk, or the writer, for sick"),
    _gauge("ledgermq_raft_lacks_entries", "1 while the log lacks entries that it had held"),
    _gauge("ledgermq_member_behind_entries",
           "Entries of the leader's log that a member is not known to hold; at the leader",
           "member"),
    _gauge("ledgermq_member_behind_bytes",
           "Bytes of the leader's log that a member is not known to hold; at the leader",
           "member"),
    _gauge("ledgermq_member_behind_seconds",
           "Age of the oldest entry that a member is not known to hold; at the leader", "member"),
    _gauge("ledgermq_member_in_flight_bytes", "Bytes of entries on their way; at the leader",
           "member"),
    _gauge("ledgermq_member_silent_seconds", "Time since a member was heard of; at the leader",
           "member"),
    _gauge("ledgermq_log_position_bytes", "Position that a cursor has come to", "cursor"),
    _gauge("ledgermq_log_index", "Index of the last entry before a cursor", "cursor"),
    _gauge("ledgermq_log_begin_bytes", "Position at which the log begins"),
    _gauge("ledgermq_log_not_durable_bytes", "Bytes that are written and not durable"),
    _gauge("ledgermq_log_not_committed_bytes", "Bytes that are written and not committed"),
    _gauge("ledgermq_log_not_dispatched_bytes", "Bytes that are committed and not in the queues"),
    _gauge("ledgermq_log_not_durable_seconds",
           "Time since the last sync while anything waits for one, else 0"),
    _gauge("ledgermq_retention_held", "1 for who keeps retention from deleting more", "by"),
    _counter("ledgermq_put_lock_taken_total", "Times that the put lock was taken"),
    _counter("ledgermq_put_lock_slow_total",
             "Times that it was held longer than limits.put_lock_warn_ms"),
    _counter("ledgermq_put_lock_recovered_total", "Times that its holder had died"),
    _gauge("ledgermq_put_lock_held_seconds", "For how long it is held now, else 0"),
    Series("ledgermq_acknowledgement_seconds", SeriesKind.HISTOGRAM,
           "How long frames of producers took from the put to the acknowledgement"),
    Series("ledgermq_sync_seconds", SeriesKind.HISTOGRAM, "How long syncs of the log took"),
    Series("ledgermq_put_lock_hold_seconds", SeriesKind.HISTOGRAM,
           "How long the put lock was held: a write of all that had come"),
    _gauge("ledgermq_disk_free_bytes", "What is free on the file system of the store"),
    _gauge("ledgermq_disk_size_bytes", "Size of that file system"),
    _gauge("ledgermq_disk_full", "1 while producers are refused for want of space"),
    _gauge("ledgermq_dispatch_waits_for_space", "1 while dispatch waits for space"),
    _gauge("ledgermq_damaged_places", "Damaged places of the log that are known", "repairable"),
    _gauge("ledgermq_process_up", "1 while a process turns", "process"),
    _counter("ledgermq_process_starts_total", "Times that a process was started", "process"),
    _gauge("ledgermq_process_beat_age_seconds", "Time since its last sign of life", "process"),
    _counter("ledgermq_process_cpu_seconds_total", "Processor time of its present life",
             "process"),
    _gauge("ledgermq_process_resident_bytes", "Resident memory, what is shared included",
           "process"),
    _gauge("ledgermq_process_proportional_bytes",
           "Memory, what is shared divided among those who share it; counted once a minute",
           "process"),
    _gauge("ledgermq_process_open_files", "Open descriptors", "process"),
    _gauge("ledgermq_process_threads", "Threads", "process"),
    _gauge("ledgermq_certificate_expiry_timestamp_seconds",
           "When a certificate ends, since the epoch", "setting"),
    _gauge("ledgermq_key_file_timestamp_seconds",
           "When a file of keys, tokens or a certificate was written last", "setting"),
    _gauge("ledgermq_backup_timestamp_seconds",
           "When the last backup of this node's store was begun, since the epoch"),
    _gauge("ledgermq_backup_stream_timestamp_seconds",
           "When its backup stream last had all that was committed, since the epoch"),
    _gauge("ledgermq_backup_behind_bytes", "Committed bytes that are not in that backup"),
)  # fmt: skip

_OF_TOPICS = (
    _gauge("ledgermq_topics", "Topics that there are"),
    _gauge("ledgermq_consumer_groups", "Groups that have committed an offset"),
    _counter("ledgermq_topic_messages_total",
             "Messages stored in a topic since it was created; the greatest topics", "topic"),
    _gauge("ledgermq_topics_others", "Topics without a series of their own"),
    _gauge("ledgermq_consumer_lag_messages",
           "Messages that a group has not consumed; the pairs with the most", "group", "topic"),
    _gauge("ledgermq_consumer_lag_seconds",
           "Age of the oldest message that a group has not consumed; 0: it has consumed all",
           "group", "topic"),
    _gauge("ledgermq_consumer_lag_others_messages",
           "Messages that wait in all pairs without a series of their own"),
    _gauge("ledgermq_consumer_lag_others_pairs",
           "Pairs of group and topic without a series of their own"),
    _gauge("ledgermq_consumer_lag_look_age_seconds",
           "Time since the topic was looked at that was looked at longest ago"),
    _gauge("ledgermq_archive_timestamp_seconds",
           "When an archive said last how far it is, since the epoch", "archive"),
    _gauge("ledgermq_archive_behind_bytes", "Committed bytes that an archive has not",
           "archive"),
    _gauge("ledgermq_scrape_duration_seconds", "Time that it took to find these values"),
)  # fmt: skip

_ROCKETMQ = ("cluster", "node_type", "node_id")

_OF_ROCKETMQ = (
    _counter("rocketmq_messages_in_total",
             "RocketMQ 5's name of ledgermq_topic_messages_total, at the leader",
             *_ROCKETMQ, "topic"),
    _gauge("rocketmq_consumer_lag_messages",
           "RocketMQ 5's name of ledgermq_consumer_lag_messages, at the leader",
           *_ROCKETMQ, "topic", "consumer_group", "is_retry"),
    _gauge("rocketmq_consumer_lag_latency_milliseconds",
           "RocketMQ 5's name of ledgermq_consumer_lag_seconds, in ms, at the leader",
           *_ROCKETMQ, "topic", "consumer_group", "is_retry"),
    _counter("rocketmq_send_to_dlq_messages_total",
             "RocketMQ 5's name of ledgermq_broker_messages_dead_total", *_ROCKETMQ),
    _counter("rocketmq_commit_messages_total",
             "RocketMQ 5's name of ledgermq_broker_transactions_committed_total", *_ROCKETMQ),
    _counter("rocketmq_rollback_messages_total",
             "RocketMQ 5's name of ledgermq_broker_transactions_rolled_back_total", *_ROCKETMQ),
    _gauge("rocketmq_half_messages",
           "RocketMQ 5's name of ledgermq_broker_half_messages_waiting", *_ROCKETMQ),
    _gauge("rocketmq_storage_dispatch_behind_bytes",
           "RocketMQ 5's name of ledgermq_log_not_dispatched_bytes", *_ROCKETMQ),
    _gauge("rocketmq_storage_flush_behind_bytes",
           "RocketMQ 5's name of ledgermq_log_not_durable_bytes", *_ROCKETMQ),
)  # fmt: skip

CATALOG: dict[str, Series] = {
    series.name: series for series in (*_OF_NODE, *_OF_TOPICS, *_of_counters(), *_OF_ROCKETMQ)
}
"""All series by name, in the order in which they are told."""
