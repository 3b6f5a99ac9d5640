"""First contact of a client that blocks; see ``first_contact``."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any

from ledgermq.client.closing import Closing
from ledgermq.client.core.known_groups import KnownGroups
from ledgermq.client.first_contact import FirstContact, told_by


class WaitsForContact(FirstContact, Closing):
    """One that blocks; threads may share it."""

    def _begin_contact(self, *, one_group: bool) -> None:
        self._contact_lock = threading.Lock()
        if not one_group:
            self._ask_first(self._first)

    def _first(self, verb: str, /, *args: Any, **kwargs: Any) -> Any:
        self._make_contact()
        return getattr(self, verb)(*args, **kwargs)

    def _make_contact(self) -> KnownGroups | None:
        """What was told of the cluster, once it is known; None: there is one group.

        Raises:
            LedgerError: nobody has told it; the next call asks again.
        """
        if self._is_asking:
            # In a child that was forked another thread of the parent may hold the lock for ever.
            self._check_process()
            with self._contact_lock:
                if self._is_asking:
                    self._know(told_by(self._addresses) or self._ask_groups())
        return self._told

    def _end_contact(self) -> None:
        """Ask nobody any more: it is being closed."""
        with self._contact_lock:
            if self._is_asking:
                self._know(None)

    @abstractmethod
    def _ask_groups(self) -> KnownGroups | None:
        """What ``contact_steps`` come to."""
