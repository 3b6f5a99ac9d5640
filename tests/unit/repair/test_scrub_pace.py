"""Passes begin when they are due, their steps keep the rate."""

from __future__ import annotations

from ledgermq.model.config.settings import ScrubSection
from ledgermq.repair.scrub_pace import FIRST_PASS_NS, STEP_SIZE_MAX, STEP_SIZE_MIN, ScrubPace

S = 1_000_000_000
HOURLY = ScrubSection(rate_bytes_per_s=1024 * 1024, every_s=3_600)


def test_a_node_that_starts_reads_nothing_at_first() -> None:
    assert ScrubPace(HOURLY, 5).due_ns == 5 + FIRST_PASS_NS


def test_passes_that_are_wanted_often_begin_sooner() -> None:
    assert ScrubPace(ScrubSection(rate_bytes_per_s=1, every_s=2), 5).due_ns == 5 + 2 * S


def test_steps_of_a_pass_keep_the_rate_and_the_next_pass_its_time() -> None:
    pace = ScrubPace(HOURLY, 0)
    size = pace.begin_step(FIRST_PASS_NS)
    after_step = pace.due_ns
    pace.begin_step(after_step)
    pace.end_pass()

    assert size == HOURLY.rate_bytes_per_s // 4
    assert after_step == FIRST_PASS_NS + S // 4
    assert pace.due_ns == FIRST_PASS_NS + 3_600 * S


def test_a_pass_that_took_too_long_is_followed_by_the_next_at_its_rate() -> None:
    pace = ScrubPace(ScrubSection(rate_bytes_per_s=1024, every_s=1), 0)
    size = pace.begin_step(S)
    pace.end_pass()

    assert size == STEP_SIZE_MIN
    assert pace.due_ns == S + STEP_SIZE_MIN // 1024 * S


def test_a_step_is_bounded_whatever_the_rate() -> None:
    pace = ScrubPace(ScrubSection(rate_bytes_per_s=1 << 40, every_s=1), 0)

    assert pace.begin_step(S) == STEP_SIZE_MAX


def test_a_rate_of_nothing_reads_nothing_until_it_is_changed() -> None:
    pace = ScrubPace(ScrubSection(rate_bytes_per_s=0, every_s=3_600), 0)
    never = pace.due_ns
    pace.change(ScrubSection(rate_bytes_per_s=1024, every_s=10), 7 * S)

    assert never > 1 << 62
    assert pace.due_ns == 17 * S
