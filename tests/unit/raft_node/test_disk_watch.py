"""A disk is sick when nothing becomes durable, and well only after a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.model.ids import Index, Position, Term
from ledgermq.raft_node.slow_looks import DiskWatch

MS = 1_000_000


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    made = CursorPage.create(tmp_path / "page")
    yield made
    made.close()


def publish(page: CursorPage, *, written: int, durable: int, now: int) -> None:
    page.publish_written(LogCursor(Position(written), Index(written), Term(1)), written)
    page.publish_durable(LogCursor(Position(durable), Index(durable), Term(1)), now * MS)


def looks(watch: DiskWatch, page: CursorPage, start: int, end: int) -> list[tuple[int, str]]:
    """What is said at which millisecond."""
    said = [(now, watch.look(page, now * MS)) for now in range(start, end, 100)]
    return [(now, text) for now, text in said if text is not None]


def test_what_does_not_become_durable_makes_it_sick_until_it_was_well_for_a_while(
    page: CursorPage,
) -> None:
    watch = DiskWatch(sick_after_ms=1_000, now_ns=1_000 * MS)
    publish(page, written=10, durable=5, now=1_000)
    sick = looks(watch, page, 1_100, 3_000)
    publish(page, written=10, durable=10, now=3_000)
    well = looks(watch, page, 3_000, 6_000)

    assert sick == [(2_100, "what was written is not durable after 1000 ms")]
    assert well == [(3_900, "")]
    assert not watch.is_sick


def test_a_silent_writer_makes_it_sick(page: CursorPage) -> None:
    watch = DiskWatch(sick_after_ms=1_000, now_ns=1_000 * MS)
    publish(page, written=10, durable=10, now=1_000)
    page.beat(Role.WRITER, 1_050 * MS)

    assert looks(watch, page, 1_100, 3_000) == [
        (2_100, "the writer gave no sign of life for 1050 ms")
    ]


def test_one_that_was_stopped_itself_blames_nobody(page: CursorPage) -> None:
    watch = DiskWatch(sick_after_ms=1_000, now_ns=1_000 * MS)
    publish(page, written=10, durable=5, now=1_000)
    page.beat(Role.WRITER, 1_050 * MS)
    before = looks(watch, page, 1_100, 1_500)
    after = looks(watch, page, 60_000, 60_900)

    assert (before, after) == ([], [])
