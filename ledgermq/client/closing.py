"""Clients that are closed at the end of a ``with`` block, and say so when they are used later."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import cache, wraps
from inspect import Signature, iscoroutinefunction, isfunction
from typing import Any, ClassVar, NoReturn, Self

from ledgermq.client.core.asked import AskedVerb
from ledgermq.client.core.wrong_calls import check_call, check_name, check_options, own_signature
from ledgermq.client.forks import OfOneProcess
from ledgermq.model.errors import ClosedError, LedgerError


class Ending(OfOneProcess):
    """A client that refuses each of its verbs once it is closed, or in a child that was forked.

    What refuses stands in the place of the verb in the client itself: while it is open, no call
    pays for the question whether it is. What threads do that have begun before is theirs to end.
    """

    AFTER_CLOSE: ClassVar[frozenset[str]] = frozenset()
    """Verbs that know by themselves that it is closed, and what to do then."""

    OPENS_AGAIN: ClassVar[bool] = True
    """Whether one of a loop that was closed may be opened once more."""

    _ended_by: LedgerError | None = None

    __signature__: ClassVar[Signature]
    """What a client is made with; that of ``__new__`` says nothing."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        check_call(cls.__name__, cls.__signature__, args, kwargs, options=cls._options)
        check_name(kwargs.get("name"))
        check_options(kwargs, cls._options)
        made = super().__new__(cls)
        made._belong()
        return made

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        cls.__signature__ = own_signature(cls.__init__)
        for name, value in vars(cls).items():
            if isfunction(value):
                # Python names a method that is called with something wrong so; the class that has
                # it may be a part of several, whose name nobody knows.
                value.__qualname__ = name
        for name, made in (("close", _closes), ("__aenter__", _opens)):
            own = vars(cls).get(name)
            if own is not None and not getattr(own, "__isabstractmethod__", False):
                setattr(cls, name, made(own))

    @classmethod
    def _options(cls) -> dict[str, type]:
        """Classes of its arguments that are options, by these arguments' names."""
        names = vars(sys.modules[cls.__init__.__module__])
        declared = {
            name: names.get(str(one.annotation).partition(" ")[0])
            for name, one in cls.__signature__.parameters.items()
        }
        return {
            name: kind
            for name, kind in declared.items()
            if name.endswith("options") and isinstance(kind, type)
        }

    def _leave(self) -> None:
        """Have each verb say that it is the parent's; nothing is left to close."""
        self._refuse(self._left_error(), verbs_of(type(self)))
        is_awaited = iscoroutinefunction(getattr(type(self), "close", None))
        vars(self)["close"] = _nothing_awaited if is_awaited else _nothing

    def _reopen(self) -> None:
        """Do what the verbs say again.

        Raises:
            ClosedError: this cannot be opened once more.
        """
        if self._ended_by is None:
            return
        if vars(self).get("close") is not None:
            raise self._left_error()
        if not self.OPENS_AGAIN:
            raise ClosedError("client is closed", client=type(self).__name__)
        self._ended_by = None
        for verb in verbs_of(type(self)):
            vars(self).pop(verb, None)

    def _check_free(self) -> None:
        """Refuse to be closed while another thread uses it, where one at a time may.

        Raises:
            ConfigError: one does.
        """

    def _refuse_closed(self) -> None:
        """Say of each verb from now on that the client is closed."""
        error = ClosedError("client is closed", client=type(self).__name__)
        self._refuse(error, verbs_of(type(self)) - self.AFTER_CLOSE)

    def _check_process(self) -> None:
        """Go on with what was begun by no verb.

        Raises:
            ClosedError: in a child that was forked since.
        """
        if self._ended_by is not None:
            raise self._ended_by

    def _refuse(self, error: LedgerError, verbs: Iterable[str]) -> None:
        self._ended_by = error
        kind, message, details = type(error), error.message, error.details

        def refuse(*_args: object, **_kwargs: object) -> NoReturn:
            raise kind(message, **details)

        vars(self).update(dict.fromkeys(verbs, refuse))


@cache
def verbs_of(kind: type[object]) -> frozenset[str]:
    """The public methods of a kind of client, but for the one that closes it."""
    found = {name: value for one in reversed(kind.__mro__) for name, value in vars(one).items()}
    return frozenset(
        name
        for name, value in found.items()
        if not name.startswith("_")
        and (isfunction(value) or isinstance(value, AskedVerb))
        and name != "close"
        and not hasattr(Ending, name)
    )


def _closes(close: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(close)
    def closed(self: Ending, *args: Any, **kwargs: Any) -> None:
        self._check_free()
        try:
            close(self, *args, **kwargs)
        finally:
            self._refuse_closed()

    @wraps(close)
    async def awaited(self: Ending, *args: Any, **kwargs: Any) -> None:
        try:
            await close(self, *args, **kwargs)
        finally:
            self._refuse_closed()

    return awaited if iscoroutinefunction(close) else closed


def _opens(enter: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(enter)
    async def opened(self: Ending) -> Any:
        self._reopen()
        return await enter(self)

    return opened


def _nothing(*_args: object, **_kwargs: object) -> None:
    """In the place of ``close`` in a child: the connection is the parent's to end."""


async def _nothing_awaited(*_args: object, **_kwargs: object) -> None:
    """The same of a client of a loop."""


class Closing(Ending):
    """A client of threads, used as ``with Client(…) as client:``."""

    @abstractmethod
    def close(self) -> None:
        """Say goodbye, and close."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClosing(Ending):
    """A client of a loop, opened by ``async with``; what that opens is its own."""

    @abstractmethod
    async def close(self) -> None:
        """Say goodbye, and close."""

    async def __aexit__(self, *_: object) -> None:
        await self.close()
