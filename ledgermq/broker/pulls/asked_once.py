"""Questions to the cold process whose askers come again for the answer.

Who cannot wait is refused, retriably, and what was answered meanwhile is given to whoever asks the
same again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ledgermq.model.errors import LedgerError
from ledgermq.wire.cold_frames import AnyQuestion, ColdMessage, ColdRefusal

KEPT_MS = 1_000
"""An answer that came or was used stays so long, whoever asks: it is used again right after."""

KEPT_MS_MAX = 10_000
"""It stays no longer than this, however much it is used: of more askers than there is room for each
one's turn comes."""

IN_LINE_MS = 2_000
"""Who waits for room and has not asked for so long has gone, and stands in nobody's way."""

IN_LINE_MAX = 10_000

Key = TypeVar("Key", bound=Hashable)

MakeQuestion = Callable[[int], AnyQuestion]
"""Makes a question that has this number."""


class _Asked(NamedTuple):
    number: int
    wait_ms: int


@dataclass(slots=True)
class _Kept:
    found: ColdMessage | LedgerError | _Asked
    since_ms: int
    touched_ms: int

    def stays(self, now_ms: int) -> bool:
        """Whether no other question may take its room yet."""
        if isinstance(self.found, _Asked):
            return now_ms - self.since_ms < self.found.wait_ms
        return now_ms - self.touched_ms < KEPT_MS and now_ms - self.since_ms < KEPT_MS_MAX


class AskedOnce(Generic[Key]):
    """Owned by who asks; of more than ``most`` questions those are forgotten that nobody has asked
    for longest, and where all are of use others wait in line.

    Invariant: ``_keys`` has the numbers of all ``_Asked`` of ``_kept``, which is in the order in
    which they were touched last.
    """

    def __init__(
        self,
        ask: Callable[[MakeQuestion], int],
        away: Callable[[str], LedgerError],
        now_ms: Callable[[], int],
        *,
        most: int,
        reason: str,
    ) -> None:
        """Nothing is asked yet.

        Args:
            ask: sends a question; its number.
            away: the refusal of who has to ask again, for that reason.
        """
        self._ask = ask
        self._away = away
        self._now_ms = now_ms
        self._most = most
        self._reason = reason
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._keys: dict[int, Key] = {}
        # Who waits for room, in turn, and when each has asked last.
        self._line: OrderedDict[Key, int] = OrderedDict()

    def get(self, key: Key, make: MakeQuestion, wait_ms: int) -> ColdMessage:
        """The answer; asked for where nobody has, or it has not come within ``wait_ms``.

        Raises:
            ColdAwayError: it is not there yet.
            LedgerError: the cold process could not tell; it is asked anew.
        """
        kept = self._kept.get(key)
        if kept is None:
            if self._has_room_for(key):
                self._put(key, make, wait_ms)
            raise self._away(self._reason)
        if isinstance(kept.found, _Asked):
            if not kept.stays(self._now_ms()):
                self._put(key, make, wait_ms)
            raise self._away(self._reason)
        if isinstance(kept.found, LedgerError):
            self._put(key, make, wait_ms)
            raise kept.found
        self.touch(key)
        return kept.found

    def want(self, key: Key, make: MakeQuestion, wait_ms: int) -> None:
        """Have it asked for beforehand, unless it is, or is known, or others need the room."""
        if key not in self._kept and len(self._kept) < self._most and not self._line:
            self._put(key, make, wait_ms)

    def _has_room_for(self, key: Key) -> bool:
        """Make room for another question, if it is its turn and something may go."""
        now_ms = self._now_ms()
        while self._line and now_ms - next(iter(self._line.values())) > IN_LINE_MS:
            self._line.popitem(last=False)
        is_next = not self._line or next(iter(self._line)) == key
        if is_next and len(self._kept) >= self._most:
            others = (one for one, kept in self._kept.items() if not kept.stays(now_ms))
            oldest = next(others, None)
            if oldest is not None:
                self.pop(oldest)
        if is_next and len(self._kept) < self._most:
            self._line.pop(key, None)
            return True
        if key in self._line or len(self._line) < IN_LINE_MAX:
            self._line[key] = now_ms
        return False

    def pop(self, key: Key) -> None:
        """Forget an answer, or that it was asked for."""
        kept = self._kept.pop(key, None)
        if kept is not None and isinstance(kept.found, _Asked):
            self._keys.pop(kept.found.number, None)

    def touch(self, key: Key) -> None:
        """An answer that ``answers`` has given is of use."""
        self._kept[key].touched_ms = self._now_ms()
        self._kept.move_to_end(key)

    def answers(self) -> Iterator[tuple[Key, ColdMessage]]:
        """All answers that are kept."""
        for key, kept in self._kept.items():
            if not isinstance(kept.found, _Asked | LedgerError):
                yield key, kept.found

    def take(self, answer: ColdMessage, number: int) -> bool:
        """Keep an answer, if it is one to a question of these."""
        key = self._keys.pop(number, None)
        if key is None:
            return False
        found = answer.error if isinstance(answer, ColdRefusal) else answer
        now_ms = self._now_ms()
        self._kept[key] = _Kept(found, now_ms, now_ms)
        self._kept.move_to_end(key)
        return True

    def forget_asked(self) -> None:
        """Who was asked is gone: who asks again asks the next one."""
        for key in list(self._keys.values()):
            self.pop(key)

    def _put(self, key: Key, make: MakeQuestion, wait_ms: int) -> None:
        self.pop(key)
        number, now_ms = self._ask(make), self._now_ms()
        self._kept[key] = _Kept(_Asked(number, wait_ms), now_ms, now_ms)
        self._keys[number] = key
