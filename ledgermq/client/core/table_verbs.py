"""Verbs of the table (``ledgermq.verbs``) as methods of clients, with their types."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any

from ledgermq.client.core.asked import AskedVerb, P
from ledgermq.client.core.questions import asking
from ledgermq.client.core.requests import Request, Steps
from ledgermq.verbs.verb import RowsVerb, Told, Verb


def verb(make: Callable[P, Verb[Told]]) -> AskedVerb[P, Request, Told]:
    """A verb as a method, which takes what the struct of the verb takes."""

    # What a struct has beside its help is none of the method's.
    @wraps(make, assigned=("__doc__",), updated=())
    def of_client(client: object, /, *args: P.args, **kwargs: P.kwargs) -> Steps[Told]:
        return asking(make(*args, **kwargs))

    # What it wraps is a struct, and no function with these steps.
    del of_client.__wrapped__
    declared = signature(make)
    client = Parameter("self", Parameter.POSITIONAL_ONLY)
    of_client.__signature__ = declared.replace(  # type: ignore[attr-defined]
        parameters=[client, *declared.parameters.values()],
        return_annotation=f"Steps[{_told(make)}]",
    )
    return AskedVerb(of_client)


def _told(made: Any) -> str:
    """What is told, as help says it: the base of a verb with rows knows not which they are."""
    if made.ROW is not None:
        return str(made.ROW.__name__)
    if issubclass(made, RowsVerb):
        return f"list[{made.ROWS[1].__name__}]"
    return str(signature(made.told).return_annotation)
