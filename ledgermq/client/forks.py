"""Things of one process: in a child that is forked they leave what is there to the parent."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import NoReturn
from weakref import WeakSet

from ledgermq.model.errors import ClosedError

_made: WeakSet[OfOneProcess] = WeakSet()


class OfOneProcess(ABC):
    """What must not be used, nor ended, by a child of the process that has made it.

    Connections would be ended, or sent to, by both; threads are not there in the child, and a lock
    may be held for ever by one of them.
    """

    _made_by: int

    def _belong(self) -> None:
        """Be of this process: called once all is there that ``_leave`` needs.

        What another thread has not made so far when a child is forked nobody has there.
        """
        self._made_by = os.getpid()
        _made.add(self)

    @abstractmethod
    def _leave(self) -> None:
        """Be of no use from now on: called in the child, before anything else runs there.

        Nothing may be sent, and no lock taken.
        """

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, as arguments for another process are."""
        raise TypeError(
            f"{type(self).__name__} cannot be pickled: each process makes clients of its own,"
            " of the same address"
        )

    def _left_error(self) -> ClosedError:
        """What to tell who uses it in the child."""
        return ClosedError(
            "client is another process's: one that was forked makes clients of its own",
            client=type(self).__name__,
            made_by=self._made_by,
            process=os.getpid(),
        )


def _leave_all() -> None:
    for one in list(_made):
        one._leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
