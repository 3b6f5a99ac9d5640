"""Services: parts of the broker with a turn of their own, their list, and the mailbox for answers.

There is one loop over the list for each thing that is done with all of them. What ends the turn of
one ends no other one. A service that meets what nobody has thought of rests, longer each time, and
begins anew from what the log says; clients and the other services go on meanwhile. What the disk
refuses ends the process, as everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

from ledgermq.broker.state.state_requests import Reply
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import LedgerError, StorageError
from ledgermq.sessions.request_faults import Contain

logger = logging.getLogger(__name__)

REST_MS = 1_000
REST_MS_MAX = 30_000
"""Rest of a service after its first failure, and its longest rest: each failure doubles it, and a
turn without one forgets it."""

Send = Callable[[Reply], object]


class Mailbox(list[Reply]):
    """Answers that services have given, on their way to the clients that have waited for them.

    Owned by the broker process, which empties it after each service's turn. Whoever answers later
    than at once has it from the start, and needs to know nobody who knows clients.
    """

    def take(self) -> list[Reply]:
        """All of them, in their order; none stays."""
        replies = list(self)
        self.clear()
        return replies


class Service:
    """What the worker does with each of its services (``Services``).

    What stands here is that of a service that has nothing to do about it. Times are monotonic.

    Attributes:
        name: what log lines call it.
        can_rest: an error that nobody has thought of ends one turn of it, and not the process: it
            rests for a while, and begins anew from what the log says.
    """

    name: ClassVar[str] = ""
    can_rest: ClassVar[bool] = False

    @property
    def awaits(self) -> bool:
        """Whether somebody waits for what is dispatched next."""
        return False

    @property
    def is_behind(self) -> bool:
        """Whether there is more to do at once than the last turn has done."""
        return False

    def notice_growth(self, now_ms: int) -> None:
        """Something was dispatched since the last turn."""

    def turn(self, now_ms: int) -> None:
        """Do what is due."""

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has something to do that nothing else tells of; None: never."""
        return None

    def begin_again(self) -> None:
        """The last turn has failed: what is known of the log may be wrong."""

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again."""

    def end_all(self) -> None:
        """Answer all who wait: the node stops."""


class _Rest(NamedTuple):
    until_ms: int
    pause_ms: int


class Services:
    """Owned by the broker process. They are served in the order of the list."""

    def __init__(self, services: tuple[Service, ...], mailbox: Mailbox, contain: Contain) -> None:
        """None of them rests.

        Args:
            mailbox: where they put their answers.
            contain: told of what a service has met; raises it where bugs are to be seen.
        """
        self._services = services
        self._mailbox = mailbox
        self._contain = contain
        self._rests: dict[str, _Rest] = {}
        # What is asked with each message that comes is asked of those that may ever say yes.
        self._awaiting = self._with_own("awaits")
        self._lagging = self._with_own("is_behind")
        self._growing = self._with_own("notice_growth")

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services)

    @property
    def awaits(self) -> bool:
        """Whether somebody waits for what is dispatched next."""
        for service in self._awaiting:  # noqa: SIM110 - a generator is one more call each
            if service.awaits:
                return True
        return False

    @property
    def is_behind(self) -> bool:
        """Whether one that does not rest has more to do at once, or its answer was not sent yet."""
        if self._mailbox:
            return True
        for service in self._lagging:
            if service.is_behind and service.name not in self._rests:
                return True
        return False

    def next_deadline_ms(self) -> int | None:
        """When the first of them has something to do; None: never."""
        first: int | None = None
        for service in self._services:
            rest = self._rests.get(service.name)
            due_ms = service.next_deadline_ms() if rest is None else rest.until_ms
            if due_ms is not None and (first is None or due_ms < first):
                first = due_ms
        return first

    def notice_growth(self, now_ms: int) -> None:
        """Something was dispatched since the last turn."""
        for service in self._growing:
            service.notice_growth(now_ms)

    def turn(self, now_ms: int, send: Send) -> None:
        """Have each do what is due; what it has answered is sent before the next one's turn.

        Raises:
            StorageError, OSError: the disk refused.
        """
        for service in self._services:
            if service.can_rest:
                self._turn_or_rest(service, now_ms)
            else:
                service.turn(now_ms)
            if self._mailbox:
                self._send(send)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again."""
        for service in self._services:
            service.take_settings(settings)

    def end_all(self, send: Send) -> None:
        """Answer all who wait: the node stops."""
        for service in self._services:
            service.end_all()
        self._send(send)

    def _with_own(self, name: str) -> tuple[Service, ...]:
        """Services that have something of that name to say, or to do."""
        default = getattr(Service, name)
        return tuple(one for one in self._services if getattr(type(one), name) is not default)

    def _send(self, send: Send) -> None:
        for reply in self._mailbox.take():
            send(reply)

    def _turn_or_rest(self, service: Service, now_ms: int) -> None:
        rest = self._rests.get(service.name)
        if rest is not None and now_ms < rest.until_ms:
            return
        try:
            service.turn(now_ms)
        except (StorageError, OSError, MemoryError):
            raise
        except Exception as error:
            if not isinstance(error, LedgerError):
                self._contain(error)
            pause_ms = REST_MS if rest is None else min(2 * rest.pause_ms, REST_MS_MAX)
            self._rests[service.name] = _Rest(now_ms + pause_ms, pause_ms)
            logger.error(
                "service rests, and begins anew: %s pause_ms=%d: %s",
                service.name,
                pause_ms,
                error,
            )
            service.begin_again()
            return
        if rest is not None:
            del self._rests[service.name]
