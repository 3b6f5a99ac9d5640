"""Long answers in slices: built part by part, with other work between.

A list of all groups is tens of milliseconds of work, however well it is written. Whoever asks for
one gets it later by some turns; everybody else waits for one slice of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import NamedTuple

from ledgermq.broker.callers import Caller, Client
from ledgermq.broker.calls import Call, Result
from ledgermq.broker.service import Mailbox, Service
from ledgermq.broker.state.state_requests import Encoded, Reply
from ledgermq.model.errors import BusyError, LedgerError, NotLeaderError
from ledgermq.process.clock import Clock
from ledgermq.sessions.request_faults import Contain
from ledgermq.wire.session import encode_body

SLICE_NS = 5_000_000
"""Answers are built for so long in one turn, all together,"""

PAUSE_MS = 15
"""and while others ask, too, again after so long."""

BUILT_AT_ONCE_MAX = 8
"""What is built is in memory; each of these is of another owner."""

WAITING_MAX = 1_000

Build = Generator[None, None, bytes]
"""Ends with the answer's body, a JSON object; each step between takes well below a millisecond."""


def listed(fields: Result, **lists: Iterable[Result]) -> Build:
    """An object with ``fields``, and of each of ``lists`` the rows, one step each."""
    found: list[bytes] = [encode_body({name: fields[name]})[1:-1] for name in fields]
    for name, rows in lists.items():
        encoded = []
        for row in rows:
            encoded.append(encode_body(row))
            yield
        found.append(b'"%s":[%s]' % (name.encode(), b",".join(encoded)))
    return b"{" + b",".join(found) + b"}"


def always() -> bool:
    """True: the answer is wanted until its caller is said to be gone."""
    return True


class _Asked(NamedTuple):
    caller: Caller
    owner: str
    build: Build
    is_wanted: Callable[[], bool]


class SlicedAnswers(Service):
    """Owned by the broker process.

    Invariants: each answer is given once, or cancelled; no two of ``_built`` have one owner, and
    nobody's answer waits while ``_built`` has room and none of theirs.

    Attributes:
        others_ask: clients have asked for something in this turn; set before ``turn``.
    """

    name = "long answers"

    def __init__(self, clock: Clock, contain: Contain, mailbox: Mailbox) -> None:
        """Nothing is asked.

        Args:
            contain: told of a bug that building has met; returns the refusal.
        """
        self.others_ask = False
        self._clock = clock
        self._contain = contain
        self._mailbox = mailbox
        self._built: deque[_Asked] = deque()
        self._waiting: dict[str, deque[_Asked]] = {}
        self._count = 0
        self._due_ms = 0

    def __len__(self) -> int:
        """Answers that are not given yet."""
        return self._count

    def begin(
        self,
        caller: Caller,
        build: Build,
        *,
        owner: str = "",
        is_wanted: Callable[[], bool] = always,
    ) -> None:
        """Have an answer built; ``turn`` gives it.

        Args:
            owner: whose answers are built one after the other: a user, a host or an account.
            is_wanted: what nobody wants any more is refused at once.

        Raises:
            BusyError: too many wait.
        """
        if self._count >= WAITING_MAX:
            raise BusyError("too many wait for long answers", limit=WAITING_MAX)
        self._count += 1
        self._waiting.setdefault(owner, deque()).append(_Asked(caller, owner, build, is_wanted))
        self._take_up()

    def show(self, call: Call, fields: Result, **lists: Iterable[Result]) -> Result | None:
        """Have a call answered with ``fields``, and with the rows of ``lists``, each a step.

        Raises:
            BusyError: too many wait.
        """
        told = {**fields, **call.as_of}
        self.begin(call.caller, listed(told, **lists), owner=call.owner)
        return None

    def cancel(self, client: Client) -> None:
        """Forget what ``client`` has asked for."""
        self._built = deque(one for one in self._built if one.caller.client != client)
        for owner, asked in list(self._waiting.items()):
            left = deque(one for one in asked if one.caller.client != client)
            if left:
                self._waiting[owner] = left
            else:
                del self._waiting[owner]
        self._count = len(self._built) + sum(map(len, self._waiting.values()))
        self._take_up()

    def next_deadline_ms(self) -> int | None:
        return self._due_ms if self._count else None

    def turn(self, now_ms: int) -> None:
        """Build for the time of a slice; give the answers that are whole."""
        if not self._count or now_ms < self._due_ms:
            return
        until_ns = self._clock.monotonic_ns() + SLICE_NS
        while self._built:
            asked = self._built.popleft()
            reply = self._step(asked)
            if reply is None:
                self._built.append(asked)
            else:
                self._mailbox.append(reply)
                self._count -= 1
                self._take_up()
            if self._clock.monotonic_ns() >= until_ns:
                break
        # What was given within a slice has nobody wait for the next one.
        self._due_ms = now_ms + PAUSE_MS if self.others_ask and self._count else now_ms

    def end_all(self) -> None:
        asked = [*self._built, *(one for waiting in self._waiting.values() for one in waiting)]
        self._built.clear()
        self._waiting.clear()
        self._count = 0
        error = NotLeaderError("node stops; ask again")
        self._mailbox += [Reply(one.caller, error) for one in asked]

    def _step(self, asked: _Asked) -> Reply | None:
        if not asked.is_wanted():
            return Reply(asked.caller, NotLeaderError("nobody waits for this any more"))
        try:
            next(asked.build)
        except StopIteration as ended:
            return Reply(asked.caller, Encoded(ended.value))
        except LedgerError as error:
            return Reply(asked.caller, error)
        except (OSError, MemoryError):
            raise
        except Exception as error:
            return Reply(asked.caller, self._contain(error))
        return None

    def _take_up(self) -> None:
        """Begin what there is room for, of owners of whom nothing is built."""
        if not self._waiting or len(self._built) >= BUILT_AT_ONCE_MAX:
            return
        built = {one.owner for one in self._built}
        for owner in [one for one in self._waiting if one not in built]:
            if len(self._built) >= BUILT_AT_ONCE_MAX:
                return
            asked = self._waiting.pop(owner)
            self._built.append(asked.popleft())
            if asked:
                # Behind all others.
                self._waiting[owner] = asked
