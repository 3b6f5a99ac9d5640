"""Session limits: how many at a time, and how many of one host or account.

ZeroMQ does not tell when a connection ends. So nobody is refused because others were here before:
where all places are taken, the session that has been idle for longest makes way, one of the same
host where that has its share. Operators on unix sockets have places of their own: they always fit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from ledgermq.model.config.settings import LimitsSection
from ledgermq.model.errors import BusyError


class SessionRoom:
    """Sessions by the identity of their connections, those that were used last at the end.

    Invariants: ``_of_host`` has the identities of ``placed``, by host; an operator's is in neither.

    Attributes:
        limits: of the settings; may be replaced.
        placed: host of each.
    """

    def __init__(self, limits: LimitsSection) -> None:
        self.limits = limits
        self.placed: OrderedDict[bytes, str] = OrderedDict()
        self._of_host: dict[str, OrderedDict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self.placed)

    def displaced(
        self, host: str, *, is_idle: Callable[[bytes], bool] = lambda _: True
    ) -> bytes | None:
        """Whose session has to make way for another one of ``host``; None: there is room.

        Args:
            host: empty for an operator.
            is_idle: whether a session may be ended now.

        Raises:
            BusyError: all of them are in use; names the setting.
        """
        if not host:
            return None
        mine = self._of_host.get(host, ())
        for count, limit, candidates, name in (
            (len(mine), self.limits.sessions_per_address, mine, "sessions_per_address"),
            (len(self), self.limits.sessions_max, self.placed, "sessions_max"),
        ):
            if count < limit:
                continue
            found = next((one for one in candidates if is_idle(one)), None)
            if found is None:
                raise BusyError(
                    "too many connections that wait for answers",
                    connections=count,
                    limit=limit,
                    setting=f"limits.{name}",
                )
            return found
        return None

    def add(self, identity: bytes, host: str) -> None:
        """A session has begun, perhaps anew; an operator's, without a host, takes no place."""
        self.remove(identity)
        if host:
            self.placed[identity] = host
            self._of_host.setdefault(host, OrderedDict())[identity] = None

    def use(self, identity: bytes) -> None:
        """One of ``placed`` has been idle for no time now."""
        self.placed.move_to_end(identity)
        self._of_host[self.placed[identity]].move_to_end(identity)

    def remove(self, identity: bytes) -> None:
        """A session is over, if it had a place."""
        host = self.placed.pop(identity, None)
        if host is not None:
            mine = self._of_host[host]
            del mine[identity]
            if not mine:
                del self._of_host[host]
