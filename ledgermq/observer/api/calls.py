"""Calls of the API: one list of method, path, right, fields and answer; routes and document come
from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from ledgermq.observer.api.fields import CallField, Given
from ledgermq.observer.inquiries.inquiries import Inquiries
from ledgermq.observer.inquiries.row_pages import Json

PREFIX = "/api/v1"

Answer = Callable[[Inquiries, Given], Awaitable[Json]]
"""Asks with the values of a request, those of the path among them."""


class Needs(StrEnum):
    """What a caller needs, in words: the broker looks at it, and the document tells of it."""

    LOOK = "look: any caller"
    USER = "look, or a user with the right to the topic, or the group"
    MESSAGES = "a user with the right SUB to the topic, or an admin"
    SENDS = "a user with the right PUB to the topic, or an admin"
    ADMIN = "an admin"
    OPERATOR = "an admin's token, or root or the node's account at the unix socket"


class ApiCall(NamedTuple):
    """One of them.

    Attributes:
        path: behind ``PREFIX``; what is in braces are texts.
        name: of the operation, for programs that are made of the document.
        answer: makes the inquiry.
        shape: names of what the answer has, and their types in JSON Schema; with ``?`` behind it
            may be null. There may be more.
        path_fields, query, body: what may be said.
    """

    method: str
    path: str
    name: str
    about: str
    needs: Needs
    answer: Answer
    shape: dict[str, str]
    path_fields: Sequence[CallField] = ()
    query: Sequence[CallField] = ()
    body: Sequence[CallField] = ()

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"
