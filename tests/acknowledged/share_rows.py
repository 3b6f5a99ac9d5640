"""Verbs of share groups: what was handed out, and what was settled, whatever died since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledgermq.model.errors import GroupUnknownError
from tests.acknowledged.rows import (
    WORLD,
    Arguments,
    CallRow,
    ForgottenError,
    Note,
    Outcome,
    Row,
    outcome_of,
)
from tests.acknowledged.steps import Connections, Errand

TAKEN = 3
LONG_MS = 12 * 60 * 60 * 1_000


def _take(prefix: str, note: Note) -> Arguments:
    return {
        "group": f"{prefix}-{note.name}",
        "topic": WORLD,
        "max_messages": TAKEN,
        "invisible_ms": LONG_MS,
    }


def _places(answer: dict[str, Any]) -> set[tuple[int, int]]:
    return {(row["queue"], row["offset"]) for row in answer["messages"]}


@dataclass
class Take(Row):
    """Messages that are handed out: nobody else gets them for half a day."""

    verb: str = "share_receive"

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        answer = yield to.ask(self.verb, **_take("takes", note))
        note.facts["places"] = _places(answer)
        note.is_acknowledged = True

    def again(self, note: Note, to: Connections) -> Errand:
        """It is another receive: it gives others."""
        answer = yield to.ask(self.verb, **_take("takes", note))
        known = note.facts.get("places", set())
        if known & _places(answer):
            raise ForgottenError(f"handed out twice: {answer}")
        note.facts["places"] = known | _places(answer)
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        told = yield from outcome_of(to.ask("share_show", group=f"takes-{note.name}"))
        if not note.is_acknowledged:
            return
        if not isinstance(told, dict) or told["unsettled"] < len(note.facts["places"]):
            raise ForgottenError(f"was handed out, and is not known: {told}")


@dataclass
class Settle(Row):
    """A message that is accepted is never handed out again, and one that is not can be accepted."""

    verb: str = "share_settle"

    def prepare(self, note: Note, to: Connections) -> Errand:
        answer = yield to.ask("share_receive", **_take("settles", note))
        note.facts["handles"] = [row["handle"] for row in answer["messages"]]

    def _arguments(self, note: Note) -> Arguments:
        handles = note.facts["handles"]
        return {"group": f"settles-{note.name}", "action": "accept", "handles": handles}

    def act(self, note: Note, to: Connections) -> Errand:
        note.is_begun = True
        self._check(note, (yield to.ask("share_settle", **self._arguments(note))))

    def again(self, note: Note, to: Connections) -> Errand:
        self._check(note, (yield to.ask("share_settle", **self._arguments(note))))

    def _check(self, note: Note, answer: dict[str, Any]) -> None:
        outcomes = {row["outcome"] for row in answer["handles"]}
        wanted = {"settled"} if note.is_acknowledged else {"done", "settled"}
        if not outcomes <= wanted:
            raise ForgottenError(f"handles are {outcomes}")
        note.is_acknowledged = True

    def read(self, note: Note, to: Connections) -> Errand:
        told = yield to.ask("share_show", group=f"settles-{note.name}")
        if note.is_acknowledged and told["unsettled"]:
            raise ForgottenError(f"was accepted, and is not settled: {told}")


@dataclass
class SettleInOrder(Settle):
    """The same in an ordered group, which has one message of each queue at a time: behind it comes
    the next one, when it is settled, and none before.
    """

    verb: str = "share_settle in order"

    def prepare(self, note: Note, to: Connections) -> Errand:
        group = f"settles-{note.name}"
        yield to.ask("group_create", group=group, fields={"consumeMessageOrderly": True})
        answer = yield to.ask("share_receive", **_take("settles", note))
        note.facts["handles"] = [row["handle"] for row in answer["messages"]]
        note.facts["first"], note.facts["later"] = dict(_places(answer)), set()
        if len(note.facts["first"]) != len(answer["messages"]):
            raise ForgottenError(f"not in order: {answer}")

    def read(self, note: Note, to: Connections) -> Errand:
        answer = yield to.ask("share_receive", **_take("settles", note))
        first, later = note.facts["first"], note.facts["later"]
        for queue, offset in sorted(_places(answer)):
            # Of a queue of which nobody was told any, the first; it stays with who took it now.
            wanted = first[queue] + 1 if queue in first else 0
            may_come = note.is_begun or queue not in first
            if offset != wanted or queue in later or not may_come:
                raise ForgottenError(f"not in order: {queue}/{offset} behind {first}, {later}")
            later.add(queue)


def _is_ended(_note: Note, outcome: Outcome) -> bool:
    return isinstance(outcome, GroupUnknownError)


def share_rows() -> list[Row]:
    """All of them."""
    return [
        Take(),
        Settle(),
        SettleInOrder(),
        CallRow(
            "share_end",
            lambda note: {"group": f"ends-{note.name}", "force": True},
            lambda note: ("share_show", {"group": f"ends-{note.name}"}),
            _is_ended,
            lambda note: [("share_receive", _take("ends", note))],
            refused_again=(GroupUnknownError,),
        ),
    ]
