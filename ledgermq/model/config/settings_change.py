"""Reloadable settings, and the fingerprint of those that all members must have alike."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_file import keys_of, tables, value_text

_RELOADABLE_OF = {
    "store": "flush_interval_ms checkpoint_interval_ms",
    "scrub": "rate_bytes_per_s every_s",
    "topics": "auto_create_topic_enable default_topic_queue_nums auto_create_subscription_group",
    "remoting": "registrations_from",
    "access": "enabled admin_over_clients unix_users cluster_rights_max_age_s",
    "quotas": (
        "client_produce_bytes client_produce_messages client_consume_bytes "
        "client_consume_messages topic_produce_bytes topic_produce_messages topic_consume_bytes "
        "topic_consume_messages burst_ms"
    ),
    "transactions": "transaction_timeout_ms transaction_check_interval_ms transaction_check_max",
    "sinks": "staged_reserved_ms batch_reserved_ms",
    "limits": (
        "client_window_bytes total_window_bytes total_answers_bytes total_unread_bytes "
        "connections_max connections_per_address sessions_max sessions_per_address "
        "creations_per_s groups_per_client producer_groups_max producer_groups_per_address "
        "unread_replies_bytes unread_replies_bytes_max topics_max groups_max members_max "
        "members_bytes held_pulls_max held_pulls_per_client share_unsettled_per_group "
        "share_unsettled_max os_page_cache_busy_timeout_mills put_lock_warn_ms "
        "deduplication_memory_bytes"
    ),
    "reads": (
        "max_transfer_bytes_on_message_in_memory max_transfer_count_on_message_in_memory "
        "max_transfer_bytes_on_message_in_disk max_transfer_count_on_message_in_disk "
        "access_message_in_memory_max_ratio old_read_cache_bytes old_read_bytes_per_s "
        "enable_property_filter"
    ),
    "retention": (
        "file_reserved_time delete_when bytes_max clean_above force_above refuse_above "
        "force_clean keep_groups keep_for_members archive_wait_hours archive_wait_below"
    ),
    "cold": "pulls_max pulls_per_client wait_ms",
    "grpc": "members",
    "slaves": "connections_max bytes_per_s",
    "http": "members mirror_bytes_per_s series_max",
    "supervision": (
        "restarts_max restart_window_s restart_pause_max_ms beat_timeout_ms stop_timeout_ms "
        "flush_age_max_ms ready_within_ms"
    ),
    "log": "level",
}
RELOADABLE = frozenset(
    f"{section}.{name}" for section, names in _RELOADABLE_OF.items() for name in names.split()
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
