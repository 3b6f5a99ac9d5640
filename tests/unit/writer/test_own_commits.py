"""What a writer commits by itself, and what it leaves to raft."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgermq.ipc.cursor_page import CursorPage, LogCursor
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.ids import Index, Position, Term
from ledgermq.writer.own_commits import OwnCommits

TERM = Term(3)
FIRST = LogCursor(Position(100), Index(0), TERM)
SECOND = LogCursor(Position(200), Index(1), TERM)


class Rung:
    """A bell that counts."""

    def __init__(self) -> None:
        self.count = 0

    def ring(self) -> None:
        self.count += 1

    def rouse(self) -> None:
        raise AssertionError

    def send(self, order: bytes) -> bool:
        raise AssertionError(order)

    def close(self) -> None:
        pass


@pytest.fixture
def page(tmp_path: Path) -> Iterator[CursorPage]:
    with CursorPage.create(tmp_path / "cursors") as page:
        yield page


@pytest.fixture
def fence(tmp_path: Path) -> Iterator[RunFence]:
    """Raft's end of it."""
    fence = RunFence(tmp_path / "run.lock")
    yield fence
    fence.close()


def commits_of(page: CursorPage, bell: Rung, *, waits_for_sync: bool) -> OwnCommits:
    fence = RunFence(page.path.with_name("run.lock"))
    return OwnCommits(page, fence, bell, waits_for_sync=waits_for_sync)


@pytest.mark.parametrize("waits_for_sync", [False, True])
def test_in_a_run_what_is_held_is_committed_and_told_once(
    page: CursorPage, waits_for_sync: bool
) -> None:
    bell = Rung()
    commits = commits_of(page, bell, waits_for_sync=waits_for_sync)
    page.publish_written(FIRST, 1)
    assert not commits.has_news(TERM)
    page.publish_run(TERM)
    page.publish_written(SECOND, 2)
    page.publish_durable(FIRST, 1)
    assert commits.has_news(TERM)
    for _ in range(2):
        commits.commit(TERM)

    assert page.read_committed() == (FIRST if waits_for_sync else SECOND)
    assert not commits.has_news(TERM)
    assert bell.count == 1
    commits.close()


def test_a_writer_of_another_term_or_of_none_commits_nothing(page: CursorPage) -> None:
    commits = commits_of(page, Rung(), waits_for_sync=False)
    page.publish_run(TERM)
    page.publish_written(FIRST, 1)
    for term in (None, Term(2), Term(4)):
        assert not commits.has_news(term)
        commits.commit(term)

    assert not page.has_committed()
    commits.close()


def test_nothing_is_committed_behind_the_end_of_a_run_however_close(
    page: CursorPage, fence: RunFence
) -> None:
    commits = commits_of(page, Rung(), waits_for_sync=False)
    page.publish_run(TERM)
    page.publish_written(FIRST, 1)
    assert commits.has_news(TERM)
    late = threading.Thread(target=commits.commit, args=(TERM,))
    with fence:
        late.start()
        page.publish_run(None)
    late.join()

    assert not page.has_committed()
    commits.close()
