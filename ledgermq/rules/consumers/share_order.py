"""Order by key in a share group: which message of a queue is the first of its key.

What a queue's table says, and the keys of its messages, are all that this knows: whoever leads
reads the same. It is kept so that not each plan has to read them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from ledgermq.rules.tables.share_queue import ShareQueue

AHEAD_MAX = 4_096
"""Messages of one queue that wait for others of their key; behind them nobody looks."""

WAITS_PER_COMMAND_MAX = 4_096

IsSettled = Callable[[int], bool]


class KeyLines:
    """Messages of one queue that have a key, those of one key behind one another.

    Invariants: all below ``known`` that have a key and are not settled are in their lines, which
    ascend; what is settled may still be in one. ``_keys`` has them all, ascending.

    Attributes:
        queue: whose they are; another queue of the table, as after a reset, needs other lines.
        known: queue offset of the first message whose key was not read.
        is_checked: the first of each line does not wait, by a command that is in the log.
    """

    def __init__(self, queue: ShareQueue) -> None:
        self.queue = queue
        self.known = 0
        self.is_checked = False
        self._keys: dict[int, str] = {}
        self._lines: dict[str, deque[int]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def unread(self, count_max: int) -> list[int]:
        """Messages that are not settled and whose keys are to be read, the first so many."""
        found: list[int] = []
        for run in self.queue.runs_from(self.known):
            first = max(run.first, self.known)
            found += range(first, min(run.end, first + count_max - len(found)))
            if len(found) >= count_max:
                break
        return found

    def add(self, offset: int, key: str | None) -> None:
        """The message, behind all that are known, has that key; None: none."""
        self.known = offset + 1
        if key is not None:
            self._keys[offset] = key
            self._lines.setdefault(key, deque()).append(offset)

    def begin(self) -> None:
        """Forget what a plan has added that came to nothing: the next one may want others."""
        self.known = min(self.known, self.queue.next)
        while self._keys and next(reversed(self._keys)) >= self.known:
            _, key = self._keys.popitem()
            line = self._lines[key]
            line.pop()
            if not line:
                del self._lines[key]

    def end(self) -> None:
        """All keys are read: what is below the first message that nobody has looked at, and in no
        line, has no key, or is settled.
        """
        self.known = self.queue.next

    def first_of_its_key(self, offset: int, is_settled: IsSettled) -> int | None:
        """The first message with the key of this one that is not settled; None: there is none, or
        the message has no key.
        """
        return self.first(self._keys.get(offset), is_settled)

    def firsts(self, is_settled: IsSettled) -> Iterator[int]:
        """The first message of each key that is not settled."""
        for key in list(self._lines):
            first = self.first(key, is_settled)
            if first is not None:
                yield first

    def first(self, key: str | None, is_settled: IsSettled) -> int | None:
        """The first message with this key that is not settled."""
        if key is None or (line := self._lines.get(key)) is None:
            return None
        while line and self._is_gone(line[0]):
            del self._keys[line.popleft()]
        if not line:
            del self._lines[key]
            return None
        return next((offset for offset in line if not is_settled(offset)), None)

    def _is_gone(self, offset: int) -> bool:
        """Whether the table has it settled: what a plan settles may yet come to nothing."""
        return offset < self.queue.next and self.queue.find(offset) is None


class ShareOrder:
    """The lines of the queues of one group in one topic."""

    def __init__(self) -> None:
        self._lines: dict[int, KeyLines] = {}

    def lines(self, queue_id: int, queue: ShareQueue) -> KeyLines:
        """Those of a queue, as far as its keys are read."""
        lines = self._lines.get(queue_id)
        if lines is None or lines.queue is not queue:
            lines = self._lines[queue_id] = KeyLines(queue)
        return lines

    def read_keys(
        self,
        queues: Mapping[int, ShareQueue],
        read: Callable[[int, list[int]], Mapping[int, str]],
        count_max: int,
    ) -> bool:
        """Read the keys of what is not settled and not known, of so many messages at most; whether
        all are known then.

        Args:
            queues: of the table, by their ids.
            read: the keys of messages of a queue by their offsets, of those that have one.
        """
        for queue_id, queue in queues.items():
            lines = self.lines(queue_id, queue)
            lines.begin()
            offsets = lines.unread(count_max)
            keys = read(queue_id, offsets) if offsets else {}
            for offset in offsets:
                lines.add(offset, keys.get(offset))
            count_max -= len(offsets)
            if count_max <= 0:
                return False
            lines.end()
        return True

    def is_checked(self, queue_id: int, queue: ShareQueue) -> bool:
        """Whether it is in the log that of each key the first message does not wait."""
        lines = self._lines.get(queue_id)
        return lines is not None and lines.queue is queue and lines.is_checked

    def note_checked(self) -> None:
        """What a plan has said of the lines is in the log."""
        for lines in self._lines.values():
            lines.is_checked = True
