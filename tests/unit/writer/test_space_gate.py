"""When producers are refused for want of space, and when no more."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.ipc.page_slots import SpaceState
from ledgermq.model.config.amounts import FileSystem
from ledgermq.model.config.settings import RetentionSection
from ledgermq.model.errors import DiskFullError, NotLeaderError
from ledgermq.writer.retention.space_gate import (
    HAND_OVER_NS,
    LOOK_NS,
    TRIES,
    NoRoomError,
    SpaceGate,
)

MIB = 1024 * 1024
ROOMY = FileSystem(total=100 * MIB, used=50 * MIB, free=50 * MIB)
ABOVE = FileSystem(total=100 * MIB, used=91 * MIB, free=9 * MIB)
FULL = FileSystem(total=100 * MIB, used=100 * MIB, free=0)


class Machine:
    """A clock and a disk."""

    def __init__(self, page: CursorPage, root: Path, *, has_others: bool = False) -> None:
        self.now_ns = 10 * LOOK_NS
        self.disk = ROOMY
        self.looks = 0
        self.gate = SpaceGate(
            page,
            root,
            RetentionSection(reserve_bytes=MIB),
            reserve=None,
            has_others=lambda: has_others,
            now_ns=lambda: self.now_ns,
            look=self.look,
        )

    def look(self, root: Path) -> FileSystem:
        self.looks += 1
        return self.disk

    def turn(self, files_made: int = 1) -> bool:
        self.now_ns += LOOK_NS
        return self.gate.turn(self.now_ns, files_made)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    with CursorPage.create(tmp_path / "cursors") as made:
        yield made


@pytest.fixture
def machine(page: CursorPage, tmp_path: Path) -> Machine:
    return Machine(page, tmp_path)


def test_a_roomy_disk_is_looked_at_only_when_a_file_was_made(machine: Machine) -> None:
    for files_made in (1, 1, 1, 2, 2):
        machine.turn(files_made)

    assert machine.looks == 2
    assert machine.gate.sleep_ms(machine.now_ns) is None
    machine.gate.check()


def test_above_the_watermark_producers_are_refused_with_numbers_and_setting(
    machine: Machine, page: CursorPage
) -> None:
    machine.disk = ABOVE
    machine.turn()

    with pytest.raises(NoRoomError) as caught:
        machine.gate.check()

    assert caught.value.details == {
        "free": 9 * MIB,
        "total": 100 * MIB,
        "used_percent": 91,
        "limit": "90%",
        "setting": "retention.refuse_above",
    }
    assert page.read_space()[:3] == (SpaceState.ABOVE, 9 * MIB, 100 * MIB)


def test_a_refused_write_closes_the_gate_until_there_is_room(machine: Machine) -> None:
    machine.turn()
    machine.disk = FULL
    machine.gate.strike(DiskFullError("no space", file="f"))
    with pytest.raises(NoRoomError, match=r"retention\.reserve_bytes"):
        machine.gate.check()
    machine.disk = ROOMY._replace(used=90 * MIB, free=MIB - 1)
    machine.gate.take_settings(RetentionSection(reserve_bytes=MIB, refuse_above="100%"))
    stays = machine.turn()
    machine.disk = ROOMY
    opens = machine.turn()

    assert (stays, opens) == (False, True)
    machine.gate.check()


def test_while_full_the_disk_is_looked_at_once_a_second(machine: Machine) -> None:
    machine.disk = ABOVE
    machine.turn()
    looks = machine.looks
    for _ in range(10):
        machine.now_ns += LOOK_NS // 10
        machine.gate.turn(machine.now_ns, 1)

    assert machine.looks == looks + 1


def test_changed_settings_open_the_gate(machine: Machine) -> None:
    machine.disk = ABOVE
    machine.turn()
    machine.gate.take_settings(RetentionSection(refuse_above="95%", reserve_bytes=MIB))

    assert machine.turn()
    machine.gate.check()


def test_in_a_group_clients_are_first_sent_on_to_the_next_leader(
    page: CursorPage, tmp_path: Path
) -> None:
    machine = Machine(page, tmp_path, has_others=True)
    machine.disk = ABOVE
    machine.turn()
    with pytest.raises(NotLeaderError, match=r"retention\.refuse_above"):
        machine.gate.check()
    machine.now_ns += HAND_OVER_NS

    with pytest.raises(NoRoomError):
        machine.gate.check()


def test_a_disk_that_refuses_although_it_has_room_is_left_by_writing(
    page: CursorPage, tmp_path: Path
) -> None:
    machine = Machine(page, tmp_path)
    refused = DiskFullError("could not write the log", file="0", reason="Disk quota exceeded")
    tried: list[bool] = []

    def try_write(works: bool) -> None:
        tried.append(works)
        if not works:
            raise refused

    machine.turn()
    told = machine.gate.strike(refused)
    machine.gate.try_write = partial(try_write, works=False)
    states = [(machine.turn(), machine.gate.state) for _ in range(5)]
    machine.gate.try_write = partial(try_write, works=True)
    again = [machine.turn() for _ in range(TRIES)]

    assert "Disk quota exceeded" in str(told)
    assert states == [(False, SpaceState.FULL)] * 5
    assert again == [False] * (TRIES - 1) + [True]
    assert tried == [False] * 5 + [True] * TRIES
    assert machine.gate.state is SpaceState.ROOMY


def test_the_next_writer_knows_that_the_disk_was_full(page: CursorPage, tmp_path: Path) -> None:
    first = Machine(page, tmp_path)
    first.gate.strike(DiskFullError("could not write the log"))
    second = Machine(page, tmp_path)
    refused = second.gate.state
    second.turn()

    assert refused is SpaceState.FULL
    assert second.gate.state is SpaceState.ROOMY
