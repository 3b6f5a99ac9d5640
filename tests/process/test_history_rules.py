"""The rules that histories are judged by find what they are for, and nothing in a good one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgermq.model.errors import BusyError, TimedOutError
from tests.process.history import History, HistoryWriter, Outcome
from tests.process.history_rules import SHOWN_MAX, Stored, violations


class Story:
    """Two producers and a consumer, and what the log has in the end."""

    def __init__(self, folder: Path) -> None:
        names = ("p0", "p1", "c0")
        self._paths = [folder / name for name in names]
        self.p0, self.p1, self.c0 = (
            HistoryWriter(path, name) for path, name in zip(self._paths, names, strict=True)
        )
        self.stored: list[Stored] = []
        self._ids = itertools.count()

    def store(self, *values: str, queue: int = 0) -> list[int]:
        """Put values at the end of the log; their queue offsets."""
        offsets = []
        for value in values:
            offsets.append(sum(one.queue == queue for one in self.stored))
            self.stored.append(Stored(queue, offsets[-1], value, f"id{next(self._ids)}"))
        return offsets

    def send(self, *values: str, by: HistoryWriter | None = None, queue: int = 0) -> None:
        """Append, store and acknowledge."""
        producer = by or self.p0
        producer.acked(producer.append(queue, values), self.store(*values, queue=queue))

    def read(self, first: int, *values: str, queue: int = 0, is_end: bool = False) -> None:
        self.c0.read(queue, first, values, is_end=is_end, start_ns=time.monotonic_ns())

    @property
    def history(self) -> History:
        return History(self._paths).refresh()

    def violations(self) -> list[str]:
        return violations(self.history, self.stored)


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """Good so far: a batch, an unknown append that is there, one that is not, and a refused one."""
    made = Story(tmp_path)
    made.send("a", "b")
    made.send("c", by=made.p1, queue=1)
    there, lost = made.p0.append(0, ["d"]), made.p1.append(0, ["e"])
    made.store("d")
    made.p0.failed(there, TimedOutError("no answer"))
    made.p1.failed(lost, TimedOutError("no answer"))
    made.p1.failed(made.p1.append(0, ["f"]), BusyError("no room"))
    made.send("g", by=made.p1)
    made.read(0, "a", "b")
    made.read(2)
    made.read(2, "d", "g")
    return made


def test_a_good_story_is_taken(story: Story) -> None:
    story.read(3, "g", is_end=True)
    history = story.history
    counts = {outcome: history.count(outcome) for outcome in Outcome}

    assert counts == {Outcome.ACKED: 4, Outcome.UNKNOWN: 2, Outcome.REFUSED: 1}
    assert len(history.reads) == 4
    assert story.violations() == []


def lose(story: Story) -> None:
    story.stored.pop()


def replace(story: Story) -> None:
    story.p0.append(0, ["z"])
    story.stored[-1] = story.stored[-1]._replace(value="z")


def double(story: Story) -> None:
    story.store("d")


def double_id(story: Story) -> None:
    story.p0.append(0, ["z"])
    story.store("z")
    story.stored[-1] = story.stored[-1]._replace(unique_id=story.stored[0].unique_id)


def share(story: Story) -> None:
    story.p0.acked(story.p0.append(0, ["z"]), [1])


def invent(story: Story) -> None:
    story.store("from nowhere")


def store_refused(story: Story) -> None:
    story.store("f")


def skip(story: Story) -> None:
    story.p0.append(0, ["z"])
    story.stored.append(Stored(0, 9, "z", "id-z"))


def turn_round(story: Story) -> None:
    first, second = story.p0.append(0, ["y"]), story.p0.append(0, ["z"])
    (offset_z, offset_y) = story.store("z", "y")
    story.p0.acked(first, [offset_y])
    story.p0.acked(second, [offset_z])


def turn_time_round(story: Story) -> None:
    story.p0.acked(story.p0.append(0, ["y"]), [5])
    story.p1.acked(story.p1.append(0, ["z"]), [4])
    story.store("z", "y")


def read_other(story: Story) -> None:
    story.read(0, "b")


def read_what_is_cut(story: Story) -> None:
    story.read(4, "e")


def read_less(story: Story) -> None:
    story.read(2)


def end_too_early(story: Story) -> None:
    story.c0.read(1, 0, [], is_end=True, start_ns=time.monotonic_ns())


@pytest.mark.parametrize(
    ("spoil", "rules"),
    [
        (lose, {"lost", "misread"}),
        (replace, {"lost", "misread"}),
        (double, {"doubled"}),
        (double_id, {"doubled"}),
        (share, {"doubled", "lost"}),
        (invent, {"invented"}),
        (store_refused, {"invented", "out_of_order"}),
        (skip, {"moved"}),
        (turn_round, {"out_of_order"}),
        (turn_time_round, {"out_of_order"}),
        (read_other, {"misread"}),
        (read_what_is_cut, {"misread"}),
        (read_less, {"unread_again"}),
        (end_too_early, {"misread"}),
    ],
)
def test_a_spoiled_story_is_found_out(
    story: Story, spoil: Callable[[Story], None], rules: set[str]
) -> None:
    spoil(story)

    assert {one.partition(":")[0] for one in story.violations()} == rules


def test_many_violations_of_a_kind_are_counted(story: Story) -> None:
    story.store(*(f"invented {number}" for number in range(SHOWN_MAX + 5)))
    found = story.violations()

    assert len(found) == SHOWN_MAX + 1
    assert found[-1] == "invented: and 5 more"


def test_a_line_that_is_not_whole_is_taken_later(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.send("a")
    history = story.history
    path = tmp_path / "p0"
    whole = path.read_bytes()
    number = story.p0.append(0, ["b"])
    line = path.read_bytes().removeprefix(whole)
    path.write_bytes(whole + line[:10])
    assert len(history.refresh().appends) == 1
    path.write_bytes(whole + line)

    assert list(history.refresh().appends) == [("p0", 0), ("p0", number)]
