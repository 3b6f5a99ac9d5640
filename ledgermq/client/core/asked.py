"""Verbs declared once, as steps, and given twice: to clients that wait, and as coroutines.

    class Verbs:
        @asked
        def size(self, topic: str) -> Steps[int]:
            '''How many messages a topic has.'''
            return integer((yield from ask("size", topic=topic)), "messages")

    class Waiting(Verbs, BrokerClient): ...        # waiting.size("orders") is an int
    class Awaiting(Verbs, AsyncBrokerClient): ...  # await awaiting.size("orders")

Which of both it is follows from ``run`` of the client, for the type checker as at run time. Not for
what is called for each message: ``send`` and ``poll`` have no descriptor in their way.

Steps may be calls of other clients, too: what a client of all groups has done in one of them is
done by a client of that group, which has the same methods in both forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from inspect import Parameter, Signature, iscoroutinefunction, signature
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from ledgermq.client.core.requests import Request, Result, Steps
from ledgermq.client.core.wrong_calls import check_call, check_types, own_signature

P = ParamSpec("P")
Client = TypeVar("Client")
Step = TypeVar("Step")
"""What a client's steps are: questions to a broker, mostly."""

Taken_contra = TypeVar("Taken_contra", contravariant=True)


class Waits(Protocol[Taken_contra]):
    """A client that blocks."""

    def run(self, steps: Generator[Taken_contra, Any, Result]) -> Result:
        """What ``steps`` come to."""


class Awaits(Protocol[Taken_contra]):
    """A client for asyncio."""

    async def run(self, steps: Generator[Taken_contra, Any, Result]) -> Result:
        """What ``steps`` come to."""


class AskedVerb(Generic[P, Step, Result]):
    """A verb of a class; ``__wrapped__`` are its steps."""

    def __init__(self, steps: Callable[..., Generator[Step, Any, Result]]) -> None:
        """A verb of ``steps``, whose first argument is the client."""

        def begun(client: object, args: Any, kwargs: Any) -> Generator[Step, Any, Result]:
            try:
                check_types(own_signature(wait), args, kwargs)
                return steps(client, *args, **kwargs)
            except TypeError:
                check_call(wait.__name__, own_signature(wait), args, kwargs)
                raise

        @wraps(steps)
        def wait(client: Waits[Step], /, *args: P.args, **kwargs: P.kwargs) -> Result:
            return client.run(begun(client, args, kwargs))

        @wraps(steps)
        async def await_(client: Awaits[Step], /, *args: P.args, **kwargs: P.kwargs) -> Result:
            return await client.run(begun(client, args, kwargs))

        self.__doc__ = steps.__doc__
        self.__wrapped__ = steps
        self._wait: Callable[..., Result] = wait
        self._await: Callable[..., Coroutine[Any, Any, Result]] = await_

    def __set_name__(self, owner: type[object], name: str) -> None:
        # Help tells of the verb and its result, and not of the steps to it.
        forms: tuple[Callable[..., object], ...] = (self._wait, self._await)
        for one in (*forms, self.__wrapped__):
            one.__name__, one.__qualname__ = name, f"{owner.__qualname__}.{name}"
            one.__module__ = owner.__module__
        for form in forms:
            form.__signature__ = _result_told(self.__wrapped__)  # type: ignore[attr-defined]

    @overload
    def __get__(self, client: Waits[Step], owner: type[Waits[Step]]) -> Callable[P, Result]: ...
    @overload
    def __get__(
        self, client: Awaits[Step], owner: type[Awaits[Step]]
    ) -> Callable[P, Coroutine[Any, Any, Result]]: ...
    @overload
    def __get__(
        self, client: None, owner: type[Waits[Step]]
    ) -> Callable[Concatenate[Waits[Step], P], Result]: ...
    @overload
    def __get__(
        self, client: None, owner: type[Awaits[Step]]
    ) -> Callable[Concatenate[Awaits[Step], P], Coroutine[Any, Any, Result]]: ...
    @overload
    def __get__(self, client: None, owner: type[object]) -> Self: ...

    def __get__(self, client: object, owner: type[object]) -> object:
        run = getattr(owner, "run", None)
        if run is None:
            return self
        verb = self._await if iscoroutinefunction(run) else self._wait
        # A plain function, so that the class's own help has it as any other method.
        return verb if client is None else verb.__get__(client, owner)


def _result_told(steps: Callable[..., object]) -> Signature:
    declared = signature(steps)
    told = re.fullmatch(r"[A-Z]\w+\[(.*)\]", str(declared.return_annotation))
    return declared.replace(return_annotation=told[1]) if told else declared


def asked(
    steps: Callable[Concatenate[Client, P], Generator[Step, Any, Result]],
) -> AskedVerb[P, Step, Result]:
    """A verb of the class that the steps are declared in."""
    return AskedVerb(steps)


def question(steps: Callable[P, Steps[Result]]) -> AskedVerb[P, Request, Result]:
    """A verb whose steps are declared elsewhere, and need nothing of the client."""

    @wraps(steps)
    def of_client(client: object, /, *args: P.args, **kwargs: P.kwargs) -> Steps[Result]:
        return steps(*args, **kwargs)

    declared = signature(steps)
    client = Parameter("self", Parameter.POSITIONAL_ONLY)
    of_client.__signature__ = declared.replace(  # type: ignore[attr-defined]
        parameters=[client, *declared.parameters.values()]
    )
    return AskedVerb(of_client)


Calls = Generator[Callable[[], Any], Any, Result]
"""Each call is yielded, and what it gives is sent back: in a loop, what awaiting that gives."""


class MakesCalls:
    """Makes the calls of its verbs."""

    def run(self, steps: Calls[Result]) -> Result:
        """What ``steps`` come to."""
        given: object = None
        while True:
            try:
                call = steps.send(given)
            except StopIteration as end:
                result: Result = end.value
                return result
            given = call()


class AwaitsCalls:
    """Awaits what the calls of its verbs give."""

    async def run(self, steps: Calls[Result]) -> Result:
        """What ``steps`` come to."""
        given: object = None
        while True:
            try:
                call = steps.send(given)
            except StopIteration as end:
                result: Result = end.value
                return result
            given = await call()
