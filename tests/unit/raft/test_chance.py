"""Chance is the published generator, and keeps within bounds."""

from __future__ import annotations

from ledgermq.raft.roles.node_state import Chance


def test_the_sequence_is_that_of_splitmix64() -> None:
    chance = Chance(1234567)

    assert [chance.bits() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_every_number_between_the_bounds_comes_and_no_other() -> None:
    chance = Chance(1)

    assert {chance.between(3, 6) for _ in range(200)} == {3, 4, 5, 6}
