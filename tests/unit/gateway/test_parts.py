"""PortParts of a port: which are called when, and in which order."""

from __future__ import annotations

from ledgermq.gateway.parts import PortPart, PortParts


class Idle(PortPart):
    """Has nothing to do in a turn; others must not pay for that."""

    def __init__(self, ended: list[PortPart]) -> None:
        self.ended = ended

    def close(self) -> None:
        self.ended.append(self)


class Busy(Idle):
    """Is due at a time."""

    def __init__(self, ended: list[PortPart], due_ms: int | None) -> None:
        super().__init__(ended)
        self.due_ms = due_ms
        self.turns: list[int] = []

    def turn(self, now_ms: int) -> None:
        self.turns.append(now_ms)

    def next_deadline_ms(self) -> int | None:
        return self.due_ms


def test_the_first_deadline_is_that_of_all_and_each_part_has_its_turn() -> None:
    ended: list[PortPart] = []
    first, second, third = Busy(ended, None), Busy(ended, 70), Busy(ended, 30)
    parts = PortParts(first, Idle(ended), second, third)

    for turn in parts.turns:
        turn(10)

    assert parts.next_deadline_ms() == 30
    assert [one.turns for one in (first, second, third)] == [[10]] * 3
    assert PortParts(Idle(ended)).next_deadline_ms() is None


def test_parts_end_the_other_way_round() -> None:
    ended: list[PortPart] = []
    first, second = Idle(ended), Busy(ended, None)

    PortParts(first, second).close()

    assert ended == [second, first]
