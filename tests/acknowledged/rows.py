"""What a row of the table of verbs is: a call that changes something, and how that is known later.

A *note* is one such call: that it was begun, and whether it was acknowledged. A call that was begun
and has no answer is unknown: what it asks for is there, or is not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ledgermq.model.errors import LedgerError, NotLeaderError
from tests.acknowledged.steps import Connections, Errand, Pending

WORLD = "ack-world"
"""A topic with messages, whose offsets groups commit."""

WORLD_QUEUES = 4
WORLD_MESSAGES = 64
"""In each of its queues."""

Outcome = dict[str, Any] | LedgerError
Arguments = dict[str, object]
Errors = tuple[type[LedgerError], ...]


class ForgottenError(Exception):
    """Something that was acknowledged is not known, or is there twice."""


class Stored(NamedTuple):
    """How many messages there may be of a call, once all that waits has come.

    Attributes:
        body: of the message; None: all messages of the topic count.
    """

    topic: str
    body: bytes | None
    least: int
    most: int


@dataclass
class Note:
    """One call.

    Attributes:
        name: no other call of the store's life has it.
        number: of the call among those of its row.
        facts: what the row keeps of it.
    """

    row: Row
    name: str
    number: int
    is_prepared: bool = False
    is_begun: bool = False
    is_acknowledged: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """A word for reports."""
        return "acknowledged" if self.is_acknowledged else "unknown"


class Row:
    """A verb that changes something.

    Attributes:
        verb: its name; a variant has another word behind it.
        lasts: what it changes is still so at the end of the store's life.
    """

    verb: str
    lasts: bool = True

    def is_for(self, connections: Connections) -> bool:
        """Whether it can be asked there."""
        del connections
        return True

    def prepare(self, note: Note, to: Connections) -> Errand:
        """What has to be there before the call."""
        del note, to
        yield from ()

    def act(self, note: Note, to: Connections) -> Errand:
        """The call, once all is prepared."""
        raise NotImplementedError

    def again(self, note: Note, to: Connections) -> Errand:
        """The same call once more: as documented, done or refused, and nothing doubled."""
        raise NotImplementedError

    def read(self, note: Note, to: Connections) -> Errand:
        """Look whether it is known, if it was acknowledged.

        Raises:
            ForgottenError: it is not.
        """
        raise NotImplementedError

    def stored(self, note: Note) -> list[Stored]:
        """What has to be in the log in the end."""
        del note
        return []


def outcome_of(pending: Pending) -> Generator[Pending, Any, Outcome]:
    """The result, or the error that the broker answered with."""
    try:
        result: dict[str, Any] = yield pending
    except LedgerError as error:
        return error
    return result


@dataclass
class CallRow(Row):
    """A verb that is asked with plain arguments, and known by one other call.

    Attributes:
        call: arguments.
        read_by: verb and arguments of the call that tells.
        known: whether it does.
        before: calls that are made first.
        refused_again: how the same call is refused when it was done before; it is done again, or
            changes nothing, where this is empty.
    """

    verb: str
    call: Callable[[Note], Arguments]
    read_by: Callable[[Note], tuple[str, Arguments]]
    known: Callable[[Note, Outcome], bool]
    before: Callable[[Note], Sequence[tuple[str, Arguments]]] = lambda _note: ()
    refused_again: Errors = ()
    lasts: bool = True

    def prepare(self, note: Note, to: Connections) -> Errand:
        for verb, arguments in self.before(note):
            yield to.ask(verb, **arguments)

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        note.facts["answer"] = yield to.ask(self.verb, **self.call(note))
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        outcome = yield from outcome_of(to.ask(self.verb, **self.call(note)))
        if isinstance(outcome, LedgerError) and not isinstance(outcome, self.refused_again):
            raise ForgottenError(f"the same call again: {outcome!r}")
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        verb, arguments = self.read_by(note)
        outcome = yield from outcome_of(to.ask(verb, **arguments))
        if isinstance(outcome, NotLeaderError):
            raise outcome
        if note.is_acknowledged and not self.known(note, outcome):
            raise ForgottenError(f"{verb} {arguments} tells {outcome!r}")
