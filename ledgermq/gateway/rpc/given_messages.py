"""Messages as gRPC clients are given them, made of what the node's broker tells; and how many bytes
of them there may be that nobody has read yet: what finds no room goes back to others.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ledgermq.formats.records.priority import priority_of
from ledgermq.formats.records.properties import MESSAGE_GROUP
from ledgermq.gateway.rpc.definition import DigestType, Encoding, MessageType, make
from ledgermq.gateway.rpc.sent_messages import RESERVED
from ledgermq.gateway.rpc.statuses import timestamp_of
from ledgermq.model.errors import BusyError

ANSWERS_BYTES = 96 * 1024 * 1024
"""All senders have so much, and one message more; one of them has half of it. What is told is there
up to four times."""


class AnswerBytes:
    """Owned by the process's loop."""

    def __init__(self, limit: int = ANSWERS_BYTES) -> None:
        self._limit = limit
        self._held: Counter[str] = Counter()

    def check(self, owner: str) -> None:
        """Refuse one message more, however large, where there is too much already.

        Raises:
            BusyError: of all, or of ``owner``.
        """
        mine, all_ = self._held[owner], self._held.total()
        if all_ >= self._limit or mine >= self._limit // 2:
            raise BusyError(
                "messages that were taken, and that nobody reads, take too much memory",
                bytes=mine,
                limit=self._limit // 2,
                owner=owner,
            )

    @contextmanager
    def held(self, owner: str, size: int) -> Iterator[None]:
        """Have so many bytes of an answer, as long as the block lasts."""
        self._held[owner] += size
        try:
            yield
        finally:
            self._held[owner] -= size
            if not self._held[owner]:
                del self._held[owner]


def given_message(
    topic: str,
    body: bytes,
    properties: Mapping[str, str],
    *,
    tag: str,
    keys: tuple[str, ...],
    message_id: str,
    kind: MessageType,
    born_ms: int,
    shown: tuple[str, ...] = (),
) -> Any:
    """A message of the protocol.

    Args:
        properties: all that it is stored with; those that are RocketMQ's own are left out but for
            ``shown``.
        born_ms: when its producer made it, epoch ms.
    """
    message = make(
        "Message",
        topic={"name": topic},
        user_properties={
            name: value
            for name, value in properties.items()
            if name not in RESERVED or name in shown
        },
        body=body,
    )
    system = message.system_properties
    system.message_id = message_id
    system.keys.extend(keys)
    if tag:
        system.tag = tag
    if MESSAGE_GROUP in properties:
        system.message_group = properties[MESSAGE_GROUP]
    if kind is MessageType.PRIORITY and (priority := priority_of(properties)) is not None:
        system.priority = priority
    system.message_type = kind
    system.body_encoding = Encoding.IDENTITY
    # Node's client reads none without it, a question about a transaction neither.
    system.body_digest.type = DigestType.MD5
    digest = hashlib.md5(body, usedforsecurity=False)
    system.body_digest.checksum = digest.hexdigest().upper()
    born = timestamp_of(born_ms)
    system.born_timestamp.seconds, system.born_timestamp.nanos = born["seconds"], born["nanos"]
    return message
