"""Whoever is refused again and again fills no log."""

from __future__ import annotations

from ledgermq.sessions.refusal_lines import ADDRESSES_MAX, LINES_MAX, WINDOW_S, RefusalLines


def test_a_client_that_tries_again_is_told_once_in_a_while() -> None:
    lines = RefusalLines()

    assert [lines.is_news("10.0.0.9", "key", now) for now in (0.0, 1.0, WINDOW_S - 1)] == [
        True,
        False,
        False,
    ]
    assert lines.is_news("10.0.0.9", "key", WINDOW_S)


def test_one_host_with_keys_without_end_has_so_many_lines_and_others_theirs() -> None:
    lines = RefusalLines()
    told = [lines.is_news("10.0.0.9", f"key{number}", 0.0) for number in range(1_000)]

    assert told == [True] * LINES_MAX + [False] * (1_000 - LINES_MAX)
    assert lines.is_news("10.0.0.1", "key0", 0.0)
    assert lines.untold == 1_000 - LINES_MAX


def test_hosts_without_end_have_so_many_lines_and_new_ones_when_these_are_silent() -> None:
    lines = RefusalLines()
    told = [lines.is_news(f"host{number}", "key", 0.0) for number in range(1_000)]

    assert sum(told) == ADDRESSES_MAX
    assert lines.is_news("another", "key", WINDOW_S)
    assert len(lines._told) == 1
