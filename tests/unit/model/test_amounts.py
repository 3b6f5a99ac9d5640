"""Amounts of disk space as settings write them."""

from __future__ import annotations

import pytest

from ledgermq.model.config.amounts import Amount, FileSystem, amount, parse_amount

HALF_FULL = FileSystem(total=1_000, used=500, free=400)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("75%", Amount(75, True)),
        ("0B", Amount(0, False)),
        ("4096", Amount(4_096, False)),
        ("3KiB", Amount(3_072, False)),
        ("200GiB", Amount(200 << 30, False)),
        ("101%", None),
        ("5GB", None),
        ("-1B", None),
        ("", None),
    ],
)
def test_an_amount_is_bytes_with_a_unit_or_per_cent(text: str, expected: Amount | None) -> None:
    assert parse_amount(text) == expected


def test_the_used_share_is_that_of_what_can_be_taken_rounded_up_as_in_rocketmq() -> None:
    assert HALF_FULL.used_percent == 56


@pytest.mark.parametrize(
    ("watermark", "is_passed", "excess"),
    [("56%", False, 0), ("50%", True, 50), ("400B", False, 0), ("450B", True, 50)],
)
def test_a_watermark_is_a_used_share_or_free_bytes(
    watermark: str, is_passed: bool, excess: int
) -> None:
    mark = amount(watermark)

    assert (mark.is_passed(HALF_FULL), mark.excess(HALF_FULL)) == (is_passed, excess)
