"""File names of the broker's tables that RocketMQ does not know: ``ROOT/ledgermq/NAME``."""

from __future__ import annotations

OWN_TABLES = (
    "queue-locks.json",
    "access.json",
    "quotas.json",
    "moves.json",
    "sinks.json",
    "archives.json",
    "name-values.json",
    "features.json",
    "cluster.json",
    "schemas.json",
    "share-groups.json",
)
"""Those of ``rules.state.state_tables``, for who copies or checks a store without a broker."""
