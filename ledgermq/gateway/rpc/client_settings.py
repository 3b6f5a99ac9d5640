"""Settings of gRPC clients: what they told of themselves, and over it what the node has them do.

Clients wait for them before they send, some without a limit; and some read fields without looking
whether they are there.
"""

from __future__ import annotations

from typing import Any

from ledgermq.gateway.rpc.definition import ClientType, make
from ledgermq.gateway.rpc.statuses import duration_of

SEND_ATTEMPTS = 3
BACKOFF_FIRST_MS, BACKOFF_MAX_MS, BACKOFF_FACTOR = 10, 1_000, 2.0
RECEIVE_BATCH = 32
POLLING_MS = 20_000
_S, _MIN, _H = 1_000, 60_000, 3_600_000
RETRY_WAITS_MS = (
    *(_S, 5 * _S, 10 * _S, 30 * _S),
    *(minutes * _MIN for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(_H, 2 * _H),
)
"""Those that RocketMQ's proxy tells."""

CONSUMERS = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER, ClientType.PULL_CONSUMER)


def filled(
    told: Any, *, body_size_max: int, retry_times_max: int = 16, is_ordered: bool = False
) -> Any:
    """The settings that a client is to go by.

    Args:
        told: its own; not changed.
        retry_times_max, is_ordered: of its group, if it consumes.
    """
    settings = make("Settings")
    settings.CopyFrom(told)
    if settings.HasField("subscription") or settings.client_type in CONSUMERS:
        policy = settings.backoff_policy
        policy.Clear()
        policy.max_attempts = retry_times_max + 1
        for wait_ms in RETRY_WAITS_MS:
            policy.customized_backoff.next.add(**duration_of(wait_ms))
        subscription = settings.subscription
        subscription.fifo = is_ordered
        subscription.receive_batch_size = RECEIVE_BATCH
        subscription.long_polling_timeout.seconds = POLLING_MS // 1_000
        subscription.long_polling_timeout.nanos = 0
    else:
        policy = settings.backoff_policy
        policy.Clear()
        policy.max_attempts = SEND_ATTEMPTS
        backoff = policy.exponential_backoff
        backoff.initial.nanos = BACKOFF_FIRST_MS * 1_000_000
        backoff.max.seconds = BACKOFF_MAX_MS // 1_000
        backoff.multiplier = BACKOFF_FACTOR
        settings.publishing.max_body_size = body_size_max
        settings.publishing.validate_message_type = True
    settings.metric.on = False
    return settings
