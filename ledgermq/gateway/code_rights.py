"""Rights that a request needs: to what it names, or those of an admin, or none.

RocketMQ asks for no right at batches, offsets, locks and transactions, and takes any signature for
them (``PlainAccessValidator``). Here no code can be answered whose row (``requests.Code``) does not
say what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from ledgermq.model.names.group_topics import RETRY_PREFIX
from ledgermq.model.rights import Right
from ledgermq.remoting.command import Command
from ledgermq.remoting.fields import text

Named = Iterator[tuple[str, Right | None]]
"""Topics with the right to them, and groups with None. Raises ``ProtocolError``: a field or the
body is not what the code wants."""

Find = Callable[[Command], Named]
"""What a request wants to use."""


class CodeNeed(Enum):
    """Who may send a code at all, where users are checked."""

    OPEN = "anybody: a name server is asked, and RocketMQ's knows no users"
    USER = "one of the users; a message that is found asks for the right to its topic"
    NAMED = "rights to what it names"
    BROKER = "a host of remoting.registrations_from: brokers tell routes, and do not sign"
    ADMIN = "an admin: it changes something for others, or shows what is nobody else's business"


def _nothing(_command: Command) -> Named:
    return iter(())


class CodeNeeds(NamedTuple):
    """What a code needs.

    Attributes:
        find: what a request wants to use, of ``CodeNeed.NAMED``. Codes that name a message by its
            place ask for the right to its topic besides, when they know it.
    """

    need: CodeNeed
    find: Find = _nothing


OPEN, USER, ADMIN = CodeNeeds(CodeNeed.OPEN), CodeNeeds(CodeNeed.USER), CodeNeeds(CodeNeed.ADMIN)
BROKER = CodeNeeds(CodeNeed.BROKER)


def named(find: Find) -> CodeNeeds:
    """Rights to what ``find`` tells of a request."""
    return CodeNeeds(CodeNeed.NAMED, find)


def send_right(field: str) -> CodeNeeds:
    """The right to send to a topic, or to consume as the group whose retry topic it is."""

    def find(command: Command) -> Named:
        name = text(command.fields, field)
        if name.startswith(RETRY_PREFIX):
            # Its consumers send that, when they cannot give a message back.
            yield name.removeprefix(RETRY_PREFIX), None
        else:
            yield name, Right.PUB

    return named(find)


def topic_right(right: Right) -> CodeNeeds:
    """A right to the field ``topic``."""

    def find(command: Command) -> Named:
        yield text(command.fields, "topic"), right

    return named(find)


def group_right(field: str) -> CodeNeeds:
    """The right to consume as a group."""

    def find(command: Command) -> Named:
        yield text(command.fields, field), None

    return named(find)


def both_rights(group: str) -> CodeNeeds:
    """The right to read the field ``topic``, and that to consume as the group of another field."""

    def find(command: Command) -> Named:
        yield text(command.fields, "topic"), Right.SUB
        yield text(command.fields, group), None

    return named(find)
