"""Rate limits of one direction, by quota: admissions, and waiting times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from ledgermq.model.config.settings import QuotasSection
from ledgermq.model.errors import QuotaError
from ledgermq.model.units import MS_NS
from ledgermq.rules.tables.quotas import UNLIMITED, Quota, QuotaTable

NS_PER_S = 1_000_000_000


class TokenBucket:
    """Invariant: the level is at most ``burst``; it grows by ``rate`` a second.

    Levels are whole numbers of a billionth of a token, so that nothing is lost to rounding.
    """

    __slots__ = ("_at_ns", "_level", "burst", "rate")

    def __init__(self, rate: int, *, burst: int, now_ns: int, is_full: bool) -> None:
        """A bucket.

        Args:
            rate: tokens a second, at least one.
            burst: most tokens that are saved up.
            is_full: whether it begins with them; else with none.
        """
        assert rate > 0 and burst > 0, (rate, burst)
        self.rate = rate
        self.burst = burst
        self._level = burst * NS_PER_S if is_full else 0
        self._at_ns = now_ns

    def wait_ms(self, now_ns: int) -> int:
        """How long until something may be taken; 0: now."""
        self._fill(now_ns)
        return 0 if self._level >= 0 else -(self._level // (self.rate * MS_NS))

    def take(self, count: int) -> None:
        """Take ``count`` tokens; to be called when ``wait_ms`` is 0, or for what was given out."""
        self._level -= count * NS_PER_S

    def _fill(self, now_ns: int) -> None:
        passed_ns = now_ns - self._at_ns
        if passed_ns > 0:
            self._level = min(self.burst * NS_PER_S, self._level + passed_ns * self.rate)
            self._at_ns = now_ns


STAY_AWAY_MS_MAX = 60_000
"""Nobody is told to stay away for longer: a quota may be raised meanwhile."""

OWNERS_MAX = 20_000
"""Owners whose buckets are kept; beyond it all of them begin anew."""

CONNECTION = "connection:"
"""Begins the owner of a client's bucket by what the settings say."""

Direction = Literal["produce", "consume"]


class _Limits(NamedTuple):
    """Rates, and their buckets; None: no limit."""

    bytes: TokenBucket | None
    messages: TokenBucket | None


class RateLimits:
    """Invariant: ``_limits`` are those of the table at ``_revision``.

    Buckets begin full, but for those of a term that begins (``restart``): its leader does not know
    what the one before has let through, and must not let it through once more.
    """

    def __init__(
        self, direction: Direction, table: QuotaTable, settings: QuotasSection, *, now_ns: int
    ) -> None:
        self._direction = direction
        self._table = table
        self._settings = settings
        self._of_client = _default(settings, "client")
        self._of_topic = _default(settings, "topic")
        self._has_defaults = self._of_client != UNLIMITED or self._of_topic != UNLIMITED
        self._limits: dict[str, _Limits] = {}
        self._revision = table.revision
        self._begin_ns = now_ns
        self._is_fresh_term = False

    @property
    def is_on(self) -> bool:
        """Whether there is any quota."""
        return self._has_defaults or len(self._table) > 0

    def take_settings(self, settings: QuotasSection) -> None:
        """The settings were read again; buckets of unchanged rates stay as full as they are."""
        if settings.burst_ms != self._settings.burst_ms:
            self._limits.clear()
        self._settings = settings
        self._of_client = _default(settings, "client")
        self._of_topic = _default(settings, "topic")
        self._has_defaults = self._of_client != UNLIMITED or self._of_topic != UNLIMITED
        self._keep_unchanged()

    def restart(self, now_ns: int) -> None:
        """This node begins to lead: buckets begin empty now."""
        self._limits.clear()
        self._begin_ns = now_ns
        self._is_fresh_term = True

    def owners(
        self, *, user: str, client: str, connection: str, topics: Iterable[str]
    ) -> list[str]:
        """Whose quotas a request uses.

        Args:
            user: name of the user, empty when there is none.
            client: name that the client gave itself.
            connection: what tells it from all others.
        """
        found = [f"topic:{topic}" for topic in topics]
        if user:
            found.append(f"user:{user}")
        if self._table.get(f"client:{client}") is not None:
            found.append(f"client:{client}")
        else:
            found.append(CONNECTION + connection)
        return found

    def check(self, owners: Iterable[str], now_ns: int) -> None:
        """Refuse while a quota of one of ``owners`` is used up.

        Raises:
            QuotaError: names owner and quota, and how long to wait.
        """
        worst_ms, who, what = 0, "", ""
        rate = 0
        for owner in owners:
            limits = self._limits_of(owner, now_ns)
            for name, bucket in (("bytes", limits.bytes), ("messages", limits.messages)):
                wait_ms = 0 if bucket is None else bucket.wait_ms(now_ns)
                if bucket is not None and wait_ms > worst_ms:
                    worst_ms, who, what, rate = wait_ms, owner, name, bucket.rate
        if worst_ms:
            raise QuotaError(
                "quota is used up",
                owner="each client" if who.startswith(CONNECTION) else who,
                quota=f"{self._direction} {what}",
                limit_per_s=rate,
                retry_after_ms=min(worst_ms, STAY_AWAY_MS_MAX),
            )

    def take(self, owner: str, *, size: int, messages: int, now_ns: int) -> None:
        """Take ``size`` bytes and ``messages``, which were let through, from the quotas of
        ``owner``.
        """
        limits = self._limits_of(owner, now_ns)
        if limits.bytes is not None:
            limits.bytes.take(size)
        if limits.messages is not None:
            limits.messages.take(messages)

    def forget(self, connection: str) -> None:
        """The connection has ended."""
        self._limits.pop(CONNECTION + connection, None)

    def _limits_of(self, owner: str, now_ns: int) -> _Limits:
        if self._revision != self._table.revision or len(self._limits) > OWNERS_MAX:
            self._revision = self._table.revision
            self._keep_unchanged()
        limits = self._limits.get(owner)
        if limits is None:
            limits = self._limits[owner] = self._make(owner, now_ns)
        return limits

    def _keep_unchanged(self) -> None:
        """Forget the buckets whose rates are others now, or all when there are too many."""
        if len(self._limits) > OWNERS_MAX:
            self._limits.clear()
        for owner, limits in list(self._limits.items()):
            rates = tuple(0 if bucket is None else bucket.rate for bucket in limits)
            if rates != self._rates(owner):
                del self._limits[owner]

    def _make(self, owner: str, now_ns: int) -> _Limits:
        def bucket(rate: int) -> TokenBucket | None:
            if not rate:
                return None
            burst = max(1, rate * self._settings.burst_ms // 1_000)
            if self._is_fresh_term:
                # Filled from the beginning of the term on, by its first question.
                return TokenBucket(rate, burst=burst, now_ns=self._begin_ns, is_full=False)
            return TokenBucket(rate, burst=burst, now_ns=now_ns, is_full=True)

        size, messages = self._rates(owner)
        return _Limits(bucket(size), bucket(messages))

    def _rates(self, owner: str) -> tuple[int, int]:
        quota = self._table.get(owner)
        if quota is None:
            is_client, is_topic = owner.startswith(CONNECTION), owner.startswith("topic:")
            quota = self._of_client if is_client else self._of_topic if is_topic else UNLIMITED
        if self._direction == "produce":
            return quota.produce_bytes, quota.produce_messages
        return quota.consume_bytes, quota.consume_messages


def _default(settings: QuotasSection, kind: Literal["client", "topic"]) -> Quota:
    if kind == "client":
        return Quota(
            produce_bytes=settings.client_produce_bytes,
            produce_messages=settings.client_produce_messages,
            consume_bytes=settings.client_consume_bytes,
            consume_messages=settings.client_consume_messages,
        )
    return Quota(
        produce_bytes=settings.topic_produce_bytes,
        produce_messages=settings.topic_produce_messages,
        consume_bytes=settings.topic_consume_bytes,
        consume_messages=settings.topic_consume_messages,
    )
