"""Cursors are read whole, whatever happens to their writer; signs of life; counters."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from ledgermq.ipc.cursor_page import (
    COUNTERS_MAX,
    PAGE_SIZE,
    CursorPage,
    Dispatched,
    Grant,
    LogCursor,
    PublishedRole,
    PutLock,
    Role,
)
from ledgermq.model.errors import StaleGenerationError, StorageError
from ledgermq.model.ids import Index, NodeId, Position, Term
from tests.suite.patience import PATIENCE_S


def cursor(number: int) -> LogCursor:
    return LogCursor(Position(number * 3), Index(number), Term(number * 7))


def test_every_cursor_is_read_as_it_was_published(tmp_path: Path) -> None:
    page = CursorPage.create(tmp_path / "page")
    page.publish_written(cursor(1), 5)
    page.publish_durable(cursor(2), 99)
    page.publish_committed(cursor(3))
    page.publish_dispatched(Dispatched(Position(4), 5, 6, 7, 8))
    page.publish_put_lock(PutLock(1, 2, 3, 4, 5))
    *_, grant = page.cursor_cells()
    version = grant[0]
    page.publish_grant(Grant(Term(9), True, PublishedRole.LEADER, NodeId("n12345678")))

    with CursorPage.attach(tmp_path / "page") as other:
        assert other.read_written() == cursor(1)
        assert other.read_durable() == (cursor(2), 99)
        assert other.read_committed() == cursor(3)
        assert other.read_dispatched() == Dispatched(Position(4), 5, 6, 7, 8)
        assert other.read_put_lock() == PutLock(1, 2, 3, 4, 5)
        assert other.read_grant() == Grant(Term(9), True, PublishedRole.LEADER, NodeId("n12345678"))
        assert other.cursor_cells()[-1][0] != version


def test_a_page_says_which_cursors_were_published(tmp_path: Path) -> None:
    page = CursorPage.create(tmp_path / "page")
    before = (page.has_written(), page.has_committed(), page.has_dispatched())
    page.publish_committed(cursor(0))

    assert before == (False, False, False)
    assert (page.has_written(), page.has_committed()) == (False, True)


def test_a_page_that_is_reset_is_as_new_but_for_what_its_supervisor_says(tmp_path: Path) -> None:
    page = CursorPage.create(tmp_path / "page")
    page.enter_process(Role.SUPERVISOR)
    page.counters(Role.SUPERVISOR)[3] = 7
    for number in (1, 2):
        page.publish_written(cursor(number), 5)
        page.publish_committed(cursor(number))
        page.publish_dispatched(Dispatched(Position(4), 5, 6, 7, 8))
    page.enter_process(Role.RAFT)
    page.counters(Role.RAFT)[2] = 9
    generation, started_ms = page.generation, page.started_ms
    page.reset()

    assert (page.has_written(), page.has_committed(), page.has_dispatched()) == (False,) * 3
    assert page.read_committed() == cursor(0)
    assert (page.read_process(Role.RAFT).pid, page.counters(Role.RAFT)[2]) == (0, 0)
    assert (page.generation, page.started_ms) == (generation + 1, started_ms)
    assert page.read_process(Role.SUPERVISOR).pid == os.getpid()
    assert page.counters(Role.SUPERVISOR)[3] == 7
    CursorPage.attach(tmp_path / "page").close()


@pytest.mark.slow
def test_a_reader_never_sees_half_a_cursor_nor_waits_for_a_stopped_writer(tmp_path: Path) -> None:
    page = CursorPage.create(tmp_path / "page")
    page.publish_written(cursor(0), 0)
    child = os.fork()
    if child == 0:
        number = 0
        while True:
            number += 1
            page.publish_written(cursor(number), number)
    try:
        for turn in range(400):
            if turn % 4 == 0:
                os.kill(child, signal.SIGSTOP if turn % 8 else signal.SIGCONT)
            for _ in range(100):
                read = page.read_written()

                assert read == cursor(read.index)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_each_start_of_the_node_has_its_generation(tmp_path: Path) -> None:
    first = CursorPage.create(tmp_path / "page")
    second = CursorPage.create(tmp_path / "page")

    assert (first.generation, second.generation) == (1, 2)
    assert second.supervisor_pid == os.getpid()


def test_a_process_takes_its_slot_and_beats(tmp_path: Path) -> None:
    page = CursorPage.create(tmp_path / "page")
    page.enter_process(Role.BROKER)
    generation = page.enter_process(Role.BROKER)
    page.beat(Role.BROKER, 123)
    page.set_asleep(Role.BROKER, True)
    slot = page.read_process(Role.BROKER)

    assert generation == 2
    assert (slot.pid, slot.beat_ns, slot.asleep, slot.generation) == (os.getpid(), 123, True, 2)
    assert page.read_process(Role.WRITER).pid == 0


def test_a_process_tells_which_settings_it_has_taken(tmp_path: Path) -> None:
    page = CursorPage.create(tmp_path / "page")
    page.enter_process(Role.BROKER)
    first, second = page.count_settings(), page.count_settings()
    page.take_settings(Role.BROKER, second)
    taken = page.read_process(Role.BROKER).settings
    page.enter_process(Role.BROKER)

    assert (first, second, page.settings_number) == (1, 2, 2)
    assert taken == 2
    assert page.read_process(Role.BROKER).settings == 0


def test_a_sign_of_life_is_no_turn_of_the_loop(tmp_path: Path) -> None:
    page = CursorPage.create(tmp_path / "page")
    turns = []
    for step in (
        lambda: page.enter_process(Role.WRITER),
        lambda: page.give_sign(Role.WRITER, 5),
        lambda: page.beat(Role.WRITER, 6),
        lambda: page.give_sign(Role.WRITER, 7),
        lambda: page.enter_process(Role.WRITER),
    ):
        step()
        turns.append(page.read_process(Role.WRITER).turns)

    assert turns == [False, False, True, True, False]


def test_counters_of_the_processes_do_not_touch(tmp_path: Path) -> None:
    page = CursorPage.create(tmp_path / "page")
    for role in Role:
        page.counters(role)[0] = role + 1
        page.counters(role)[15] = 100 + role

    assert [page.counters(role)[0] for role in Role] == list(range(1, len(Role) + 1))
    assert [page.counters(role)[15] for role in Role] == list(range(100, 100 + len(Role)))


def test_what_is_no_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not opened"):
        CursorPage.attach(tmp_path / "none")
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(StaleGenerationError, match="another size"):
        CursorPage.attach(tmp_path / "short")
    (tmp_path / "zeros").write_bytes(bytes(PAGE_SIZE))
    with pytest.raises(StaleGenerationError, match="not a cursor page"):
        CursorPage.attach(tmp_path / "zeros")


def test_a_page_that_another_version_left_is_replaced_and_counted_on(tmp_path: Path) -> None:
    path = tmp_path / "cursors"
    with CursorPage.create(path) as page:
        assert page.generation == 1
    old = bytearray(path.read_bytes()[:4_096])
    old[8:16] = (1).to_bytes(8, "little")
    path.write_bytes(old)

    with pytest.raises(StaleGenerationError):
        CursorPage.attach(path)
    with CursorPage.create(path) as page:
        assert page.generation == 2
    path.write_bytes(b"short")
    with CursorPage.create(path) as page:
        assert page.generation == 1


def test_counters_of_processes_lie_apart_and_survive_a_reset_for_the_supervisor_alone(
    tmp_path: Path,
) -> None:
    page = CursorPage.create(tmp_path / "page")
    for role in Role:
        counters = page.counters(role)
        assert len(counters) == COUNTERS_MAX
        for number in range(COUNTERS_MAX):
            counters[number] = 100 * role + number

    for role in Role:
        assert page.read_counters(role) == [100 * role + n for n in range(COUNTERS_MAX)]
    page.reset()
    assert page.read_counters(Role.SUPERVISOR) == list(range(COUNTERS_MAX))
    assert page.read_counters(Role.BROKER) == [0] * COUNTERS_MAX
    page.close()


@pytest.mark.parametrize("umask", [0, 0o002, 0o077])
def test_nobody_else_may_read_or_write_the_page(tmp_path: Path, umask: int) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    (tmp_path / "cursors.new").symlink_to(elsewhere)
    before = os.umask(umask)
    try:
        page = CursorPage.create(tmp_path / "cursors")
    finally:
        os.umask(before)
    mode = stat.S_IMODE((tmp_path / "cursors").lstat().st_mode)
    page.close()

    assert mode == 0o600
    assert elsewhere.read_bytes() == b"untouched"


class Stops:
    """Stops a thread at one line of ``CursorPage._known``, by its number, until it may go on."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.is_there = threading.Event()
        self.may_go_on = threading.Event()
        self._passed = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Stops | None:
        if frame.f_code is not CursorPage._known.__code__:
            return None
        if event == "line":
            if self._passed == self.line:
                self.is_there.set()
                assert self.may_go_on.wait(PATIENCE_S)
            self._passed += 1
        return self


@pytest.mark.parametrize("line", range(8))
def test_a_thread_that_was_late_leaves_no_older_cursor_for_others(
    tmp_path: Path, line: int
) -> None:
    page = CursorPage.create(tmp_path / "page")
    old, new = cursor(1), cursor(2)
    has_read, may_keep = threading.Event(), threading.Event()
    stops = Stops(line)

    def late(values: list[int]) -> LogCursor:
        has_read.set()
        assert may_keep.wait(PATIENCE_S)
        return LogCursor(Position(values[0]), Index(values[1]), Term(values[2]))

    def stopped() -> None:
        sys.settrace(stops)
        page.read_written()
        sys.settrace(None)
        # It may have fewer lines.
        stops.is_there.set()

    page.publish_written(old, 0)
    first = threading.Thread(target=page._known, args=(1, 3, late))
    first.start()
    assert has_read.wait(PATIENCE_S)
    page.publish_written(new, 0)
    second = threading.Thread(target=stopped)
    second.start()
    assert stops.is_there.wait(PATIENCE_S)
    may_keep.set()
    first.join()
    stops.may_go_on.set()
    second.join()

    assert page.read_written() == new
    page.close()


def test_members_of_which_nothing_is_heard_stand_in_the_page_by_name(tmp_path: Path) -> None:
    names = [NodeId(name) for name in ("n0", "Z99999999", "a00000001", "n12")]
    with CursorPage.create(tmp_path / "page") as page:
        assert page.read_absent() == frozenset()
        page.publish_absent(names)
        found = page.read_absent()
        page.publish_absent([NodeId(f"n{number}") for number in range(9)])
        first = page.read_absent()
        page.publish_absent(())
        assert page.read_absent() == frozenset()

    assert found == frozenset(names)
    assert first == {f"n{number}" for number in range(7)}
