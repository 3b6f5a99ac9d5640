"""Service: a part of the broker with a turn of its own; and the mailbox for what it answers."""

from __future__ import annotations

from typing import ClassVar

from ledgermq.broker.state.state_requests import Reply
from ledgermq.model.config.settings import Settings


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
    """What the worker does with each of its services (``services.Services``).

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
