"""First contact of a client for asyncio; see ``first_contact``."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from inspect import iscoroutinefunction
from typing import Any

from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.first_contact import FirstContact, told_by
from ledgermq.client.loop_watch import closed_early


class AwaitsContact(FirstContact):
    """One of a loop; tasks may share it."""

    _asks = True
    _contact: asyncio.Task[None] | None = None
    """The question under way: all who wait for it go on in one turn of the loop."""

    def _begin_contact(self, *, one_group: bool) -> None:
        """The first contact begins when the client is opened; with ``one_group`` never."""
        self._asks = not one_group

    def _open_contact(self) -> None:
        """Ask with the first verb that is awaited: the client has just been opened."""
        self._told = self._several = None
        if self._asks:
            self._ask_first(self._first)
            for verb in self._own_verbs():
                if not iscoroutinefunction(getattr(type(self), verb)):
                    del vars(self)[verb]

    async def _first(self, verb: str, /, *args: Any, **kwargs: Any) -> Any:
        await self._make_contact()
        return await getattr(self, verb)(*args, **kwargs)

    async def _make_contact(self) -> KnownGroups | None:
        """What was told of the cluster, once it is known; None: there is one group.

        Raises:
            LedgerError: nobody has told it; the next call asks again.
        """
        if self._is_asking:
            if self._contact is None:
                self._contact = asyncio.create_task(self._ask_and_know())
                # All who wait may have been cancelled.
                self._contact.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.shield(self._contact)
        return self._told

    async def _ask_and_know(self) -> None:
        try:
            told = told_by(self._addresses)
            if told is None and self._is_asking:
                told = await self._ask_groups()
            if not self._is_asking:
                raise closed_early()
            self._know(told)
        finally:
            self._contact = None

    def _end_contact(self) -> None:
        """Ask nobody any more: it is being closed."""
        if self._is_asking:
            self._know(None)

    @abstractmethod
    async def _ask_groups(self) -> KnownGroups | None:
        """What ``contact_steps`` come to."""
