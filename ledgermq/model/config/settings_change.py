"""Reloadable settings, and the fingerprint of those that all members must have alike."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_file import keys_of, tables, value_text

RELOADABLE = frozenset(
    {
        "store.flush_interval_ms",
        "store.checkpoint_interval_ms",
        "scrub.rate_bytes_per_s",
        "scrub.every_s",
        "topics.auto_create_topic_enable",
        "topics.default_topic_queue_nums",
        "topics.auto_create_subscription_group",
        "remoting.registrations_from",
        "access.enabled",
        "access.admin_over_clients",
        "access.unix_users",
        "access.cluster_rights_max_age_s",
        "quotas.client_produce_bytes",
        "quotas.client_produce_messages",
        "quotas.client_consume_bytes",
        "quotas.client_consume_messages",
        "quotas.topic_produce_bytes",
        "quotas.topic_produce_messages",
        "quotas.topic_consume_bytes",
        "quotas.topic_consume_messages",
        "quotas.burst_ms",
        "transactions.transaction_timeout_ms",
        "transactions.transaction_check_interval_ms",
        "transactions.transaction_check_max",
        "sinks.staged_reserved_ms",
        "sinks.batch_reserved_ms",
        "limits.client_window_bytes",
        "limits.total_window_bytes",
        "limits.total_answers_bytes",
        "limits.total_unread_bytes",
        "limits.connections_max",
        "limits.connections_per_address",
        "limits.sessions_max",
        "limits.sessions_per_address",
        "limits.creations_per_s",
        "limits.groups_per_client",
        "limits.producer_groups_max",
        "limits.producer_groups_per_address",
        "limits.unread_replies_bytes",
        "limits.unread_replies_bytes_max",
        "limits.topics_max",
        "limits.groups_max",
        "limits.members_max",
        "limits.members_bytes",
        "limits.held_pulls_max",
        "limits.held_pulls_per_client",
        "limits.share_unsettled_per_group",
        "limits.share_unsettled_max",
        "limits.os_page_cache_busy_timeout_mills",
        "limits.put_lock_warn_ms",
        "limits.deduplication_memory_bytes",
        "reads.max_transfer_bytes_on_message_in_memory",
        "reads.max_transfer_count_on_message_in_memory",
        "reads.max_transfer_bytes_on_message_in_disk",
        "reads.max_transfer_count_on_message_in_disk",
        "reads.access_message_in_memory_max_ratio",
        "reads.old_read_cache_bytes",
        "reads.old_read_bytes_per_s",
        "reads.enable_property_filter",
        "retention.file_reserved_time",
        "retention.delete_when",
        "retention.bytes_max",
        "retention.clean_above",
        "retention.force_above",
        "retention.refuse_above",
        "retention.force_clean",
        "retention.keep_groups",
        "retention.keep_for_members",
        "retention.archive_wait_hours",
        "retention.archive_wait_below",
        "cold.pulls_max",
        "cold.pulls_per_client",
        "cold.wait_ms",
        "grpc.members",
        "slaves.connections_max",
        "slaves.bytes_per_s",
        "http.members",
        "http.mirror_bytes_per_s",
        "http.series_max",
        "supervision.restarts_max",
        "supervision.restart_window_s",
        "supervision.restart_pause_max_ms",
        "supervision.beat_timeout_ms",
        "supervision.stop_timeout_ms",
        "supervision.flush_age_max_ms",
        "supervision.ready_within_ms",
        "log.level",
    }
)
"""Settings that a SIGHUP re-reads: nothing on disk and no socket depends on them."""

CLUSTER_KEYS = (
    "node.broker_cluster_name",
    "node.broker_name",
    "node.group",
    "node.peers",
    "store.log",
    "store.mapped_file_size_commit_log",
    "store.max_message_size",
    "store.message_delay_level",
    "ack.mode",
)
"""Settings that must be equal on all members of a group, or their logs would not be."""

FINGERPRINT_DIGITS = 16


def changed_keys(old: Settings, new: Settings) -> tuple[str, ...]:
    """Keys whose values differ, in the order of the settings file."""
    return tuple(key for key in _keys() if _value(old, key) != _value(new, key))


def reload_settings(running: Settings, read: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The settings to go on with, and the keys that differ and wait for a restart.

    Args:
        running: the settings in force.
        read: the file's, read again.
    """
    settings, waiting = running, list[str]()
    for key in changed_keys(running, read):
        if key not in RELOADABLE:
            waiting.append(key)
            continue
        table, _, name = key.partition(".")
        section = replace(getattr(settings, table), **{name: _value(read, key)})
        settings = replace(settings, **{table: section})
    return settings, tuple(waiting)


def cluster_fingerprint(settings: Settings) -> str:
    """Sixteen hexadecimal digits that are equal on members whose ``CLUSTER_KEYS`` are equal.

    The order of ``node.peers`` does not count. A file size of ``None`` is not resolved here: give
    settings whose sizes are those of the store's files.
    """
    lines = []
    for key in CLUSTER_KEYS:
        value = _value(settings, key)
        value = tuple(sorted(value)) if isinstance(value, tuple) else value
        lines.append(f"{key} = {'unset' if value is None else value_text(value)}\n")
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:FINGERPRINT_DIGITS]


def _keys() -> list[str]:
    defaults = Settings()
    return [f"{table}.{name}" for table in tables() for name in keys_of(getattr(defaults, table))]


def _value(settings: Settings, key: str) -> object:
    table, _, name = key.partition(".")
    value: object = getattr(getattr(settings, table), name)
    return value
