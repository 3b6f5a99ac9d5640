"""Quotas of RocketMQ's clients, for reads and for a user's sends.

What a topic may take is asked by the writer, whatever way it comes by. Of who sends, the writer
knows the port alone; so the port asks for the quotas of users.
"""

from __future__ import annotations

from ledgermq.gateway.parts import PortPart
from ledgermq.gateway.requests import Asked
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.ipc.counters import BrokerCounter, Counts
from ledgermq.model.config.settings import QuotasSection, Settings
from ledgermq.model.errors import QuotaError
from ledgermq.model.units import MS_NS
from ledgermq.rules.messages.rate_limits import RateLimits
from ledgermq.rules.tables.quotas import QuotaTable


class PortQuotas(PortPart):
    """Owned by a port."""

    def __init__(
        self,
        quotas: QuotaTable,
        settings: QuotasSection,
        counts: Counts,
        *,
        now_ms: int,
        consume: RateLimits | None = None,
    ) -> None:
        """Quotas of a process.

        Args:
            quotas: kept up by the caller.
            settings: of clients and topics without a quota of their own.
            counts: the process's counters.
            now_ms: monotonic time.
            consume: the buckets of what is read, where the process has some already; their owner
                keeps them up.
        """
        now_ns = now_ms * MS_NS
        self._counts = counts
        self._owns_consume = consume is None
        self._consume = consume or RateLimits("consume", quotas, settings, now_ns=now_ns)
        self._produce = RateLimits("produce", quotas, settings, now_ns=now_ns)

    def take_settings(self, settings: Settings) -> None:
        self._produce.take_settings(settings.quotas)
        if self._owns_consume:
            self._consume.take_settings(settings.quotas)

    def check_read(self, asked: Asked, topic: str) -> None:
        """Refuse to give messages of a topic while a quota is used up.

        Raises:
            QuotaError: names owner and quota, and how long to wait.
        """
        if self._consume.is_on:
            self._check(self._consume, self._readers(asked, topic), asked.now_ms)

    def note_read(self, asked: Asked, topic: str, *, size: int, messages: int) -> None:
        """Messages are given."""
        if self._consume.is_on:
            for owner in self._readers(asked, topic):
                self._consume.take(owner, size=size, messages=messages, now_ns=asked.now_ms * MS_NS)

    def check_sent(self, asked: Asked) -> None:
        """Refuse to store while the quota of the user is used up; else it counts.

        Raises:
            QuotaError: see ``check_read``.
        """
        if asked.user and self._produce.is_on:
            owner, now_ns = f"user:{asked.user}", asked.now_ms * MS_NS
            self._check(self._produce, [owner], asked.now_ms)
            self._produce.take(owner, size=len(asked.command.body), messages=1, now_ns=now_ns)

    def forget(self, connection: Connection) -> None:
        self._consume.forget(_name(connection))

    def _check(self, limits: RateLimits, owners: list[str], now_ms: int) -> None:
        try:
            limits.check(owners, now_ms * MS_NS)
        except QuotaError:
            self._counts[BrokerCounter.THROTTLED] += 1
            raise

    def _readers(self, asked: Asked, topic: str) -> list[str]:
        # The name that a client gives itself in its heartbeats is none that quotas go by.
        return self._consume.owners(
            user=asked.user, client="", connection=_name(asked.connection), topics=(topic,)
        )


def _name(connection: Connection) -> str:
    return f"port {connection.number}"
