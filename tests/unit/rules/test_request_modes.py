"""Modes in which groups ask for messages, as texts of the name values."""

from __future__ import annotations

import pytest

from ledgermq.rules.consumers.request_modes import PULL, RequestMode, mode_key, request_mode
from ledgermq.rules.tables.name_values import REQUEST_MODES, VALUE_NAME_SIZE_MAX, NameValues


def names(text: str) -> NameValues:
    found = NameValues()
    found.put(REQUEST_MODES, {mode_key("g", "t"): text})
    return found


@pytest.mark.parametrize("share_queues", [0, 1, 2**31 - 1])
def test_a_mode_is_read_as_it_was_written(share_queues: int) -> None:
    mode = RequestMode(True, share_queues)

    assert request_mode(names(str(mode.text)), "g", "t") == mode
    assert request_mode(names(str(mode.text)), "g", "other") == PULL


@pytest.mark.parametrize("text", ["", "POP", "PULL 0", "POP -1", "POP x", "POP 1 2", "POP \u0661"])
def test_a_text_that_says_nothing_is_as_if_there_were_none(text: str) -> None:
    assert request_mode(names(text), "g", "t") == PULL


def test_more_members_than_there_can_be_are_all() -> None:
    assert request_mode(names("POP " + "9" * 60), "g", "t").share_queues == 2**31 - 1


def test_the_longest_names_have_room() -> None:
    assert len(mode_key("g" * 120, "t" * 127)) <= VALUE_NAME_SIZE_MAX
