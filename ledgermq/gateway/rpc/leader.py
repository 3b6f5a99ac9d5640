"""Leader watch: whether this node leads, and where gRPC calls go to where it does not."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.config.settings import Settings
from ledgermq.sessions.leadership.standing import UNKNOWN, ReaderStanding

AWAITED_S = 1.0
"""How long a call waits at most for a node to lead."""


class LeaderWatch:
    """Owned by the process's loop, which looks a few times a second."""

    def __init__(self, settings: Settings, page: CursorPage) -> None:
        """Nothing is known before the first look."""
        self._self_id = settings.node.self_id
        self._standing = ReaderStanding(page, settings.store.log)
        self._now = UNKNOWN
        self._moved = asyncio.Event()
        self.take_settings(settings)
        self.look()

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again: ``grpc.members`` may be others."""
        pairs = (entry.partition("=") for entry in settings.grpc.members)
        self._members = {name: address for name, _, address in pairs}

    @property
    def leads(self) -> bool:
        """Whether this node leads, and answers all calls itself."""
        return self._now.leads

    @property
    def leader(self) -> str:
        """Id of the member that leads; empty while none is known to."""
        return self._now.leader

    @property
    def address(self) -> str:
        """The leader's for gRPC clients; empty: it is not known."""
        return self._members.get(self._now.leader, "")

    @property
    def elsewhere(self) -> str:
        """Where calls are handed on to; empty: nowhere, as where this node leads."""
        is_other = not self._now.leads and self._now.leader != self._self_id
        return self.address if is_other else ""

    async def settle(self, time_s: float | None) -> None:
        """Look at once, and while nobody leads yet, wait for who will.

        Returns when this node leads, another one does, or a second (half of ``time_s``, where that
        is shorter) is over: elections take less, and a client that is refused begins anew at best.
        """
        self.look()
        within_s = AWAITED_S if time_s is None else min(AWAITED_S, time_s / 2)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not self._now.leads and self._now.leader in ("", self._self_id):
                    await self.moved()

    def look(self) -> None:
        """Look whether the standing has changed; who waits for that goes on."""
        found = self._standing.look()
        if found is None or found == self._now:
            return
        self._now = found
        self._moved.set()
        self._moved = asyncio.Event()

    async def moved(self) -> None:
        """Return when the standing is another one than at the time of the call."""
        await self._moved.wait()
