"""Quotas as rates: what is let through in the long run, how long the others are to wait."""

from __future__ import annotations

import pytest

from ledgermq.model.config.settings import QuotasSection
from ledgermq.model.errors import ConfigError, QuotaError
from ledgermq.rules.messages.rate_limits import STAY_AWAY_MS_MAX, RateLimits, TokenBucket
from ledgermq.rules.tables.quotas import Quota, QuotaTable

S = 1_000_000_000
MS = 1_000_000


def waits_ms(limits: RateLimits, owners: list[str], now_ns: int) -> int:
    try:
        limits.check(owners, now_ns)
    except QuotaError as error:
        wait_ms = error.details["retry_after_ms"]
        assert isinstance(wait_ms, int)
        return wait_ms
    return 0


def limited(settings: QuotasSection | None = None, **quotas: Quota) -> RateLimits:
    table = QuotaTable()
    for name, quota in quotas.items():
        table.put(f"topic:{name}", quota)
    return RateLimits("produce", table, settings or QuotasSection(), now_ns=0)


def test_a_bucket_that_is_overdrawn_says_when_it_is_not() -> None:
    bucket = TokenBucket(100, burst=100, now_ns=0, is_full=True)
    bucket.take(150)

    assert bucket.wait_ms(0) == 500
    assert bucket.wait_ms(499 * MS) == 1
    assert bucket.wait_ms(500 * MS) == 0
    assert bucket.wait_ms(100 * S) == 0


def test_no_more_than_the_burst_is_saved_up() -> None:
    bucket = TokenBucket(100, burst=50, now_ns=0, is_full=False)
    assert bucket.wait_ms(100 * S) == 0
    bucket.take(150)

    assert bucket.wait_ms(100 * S) == 1_000


def test_the_rate_holds_in_the_long_run_whatever_the_size_of_a_request() -> None:
    limits = limited(t=Quota(produce_bytes=1_000))
    let_through = 0
    for ms in range(100_000):
        if waits_ms(limits, ["topic:t"], ms * MS) == 0:
            limits.take("topic:t", size=7_000, messages=1, now_ns=ms * MS)
            let_through += 7_000

    assert 100_000 <= let_through <= 100_000 + 1_000 + 7_000


def test_who_comes_when_told_is_let_in() -> None:
    limits = limited(t=Quota(produce_messages=3))
    limits.take("topic:t", size=1, messages=10, now_ns=0)
    wait_ms = waits_ms(limits, ["topic:t"], 0)

    assert waits_ms(limits, ["topic:t"], (wait_ms - 1) * MS) > 0
    assert waits_ms(limits, ["topic:t"], wait_ms * MS) == 0


def test_the_longest_wait_of_all_owners_is_told_and_by_its_name() -> None:
    limits = limited(a=Quota(produce_bytes=10), b=Quota(produce_messages=1))
    limits.take("topic:a", size=20, messages=1, now_ns=0)
    limits.take("topic:b", size=20, messages=9, now_ns=0)

    with pytest.raises(QuotaError, match=r"topic:b.*produce messages") as caught:
        limits.check(["topic:a", "topic:b"], 0)
    assert caught.value.details["limit_per_s"] == 1
    assert caught.value.retriable


def test_nobody_is_told_to_wait_for_hours() -> None:
    limits = limited(t=Quota(produce_bytes=1))
    limits.take("topic:t", size=1_000_000, messages=1, now_ns=0)

    assert waits_ms(limits, ["topic:t"], 0) == STAY_AWAY_MS_MAX


def test_each_connection_has_what_the_settings_give_a_client() -> None:
    limits = limited(QuotasSection(client_produce_messages=10))
    first, second = (
        limits.owners(user="", client="p", connection=name, topics=["t"]) for name in ("1", "2")
    )
    for owner in first:
        limits.take(owner, size=1, messages=100, now_ns=0)

    assert limits.is_on
    assert waits_ms(limits, first, 0) > 0
    assert waits_ms(limits, second, 0) == 0


def test_a_quota_of_a_clients_name_is_shared_by_its_connections() -> None:
    table = QuotaTable()
    table.put("client:p", Quota(produce_messages=10))
    limits = RateLimits("produce", table, QuotasSection(), now_ns=0)
    first, second = (
        limits.owners(user="u", client="p", connection=name, topics=[]) for name in ("1", "2")
    )
    for owner in first:
        limits.take(owner, size=1, messages=100, now_ns=0)

    assert first == second == ["user:u", "client:p"]
    assert waits_ms(limits, second, 0) > 0


def test_a_changed_quota_begins_anew_and_the_others_go_on() -> None:
    table = QuotaTable()
    for name in "ab":
        table.put(f"topic:{name}", Quota(produce_bytes=10))
    limits = RateLimits("produce", table, QuotasSection(), now_ns=0)
    for name in "ab":
        limits.take(f"topic:{name}", size=1_000, messages=1, now_ns=0)
    table.put("topic:a", Quota(produce_bytes=1_000_000))

    assert waits_ms(limits, ["topic:a"], 0) == 0
    assert waits_ms(limits, ["topic:b"], 0) > 0


def test_a_new_leader_begins_with_nothing_saved_up() -> None:
    limits = limited(t=Quota(produce_bytes=1_000))
    limits.restart(5 * S)
    limits.take("topic:t", size=1_000, messages=1, now_ns=5 * S)

    assert waits_ms(limits, ["topic:t"], 5 * S) == 1_000


def test_a_quota_is_read_back_as_it_was_written() -> None:
    table = QuotaTable()
    table.put("user:u", Quota(produce_bytes=5, consume_messages=7))

    assert QuotaTable.read(table.to_document()).get("user:u") == table.get("user:u")


@pytest.mark.parametrize("owner", ["", "topic", "topic:", "other:x", "x" * 400])
def test_what_cannot_have_a_quota_is_refused(owner: str) -> None:
    with pytest.raises(ConfigError, match="owner"):
        Quota.read(owner, {})


@pytest.mark.parametrize("value", [-1, "5", True, 2**60])
def test_a_quota_that_is_no_rate_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="produceBytes"):
        Quota.read("topic:t", {"produceBytes": value})
