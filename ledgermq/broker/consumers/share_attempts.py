"""Attempts of receives: what an answer that was lost has handed out, for who asks once more.

A client that has heard nothing of a receive may ask with the same number of its own again. It is
given the same messages then, as far as they are still with that delivery. What is forgotten, as by
another leader, comes again when its time is over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from ledgermq.broker.call_arguments import optional_text
from ledgermq.broker.calls import Call
from ledgermq.rules.consumers.share_plans import TakenPlace
from ledgermq.verbs.shares import ATTEMPT, ReceiveShared

ATTEMPTS_MAX = 8_192
PLACES_MAX = 65_536
"""Attempts that are remembered, and the stretches of messages that they were given."""


class ReceiveAttempt(NamedTuple):
    """Which receive it is, of all of one owner."""

    owner: str
    group: str
    topic: str
    number: str


class GivenPlaces(NamedTuple):
    """What an attempt was given, all with one mark."""

    places: tuple[TakenPlace, ...]
    mark: int


def attempt_of(call: Call, asked: ReceiveShared) -> ReceiveAttempt | None:
    """The attempt that a receive is; None: its client counts none."""
    number = optional_text(call.arguments, ATTEMPT)
    return None if number is None else ReceiveAttempt(call.owner, asked.group, asked.topic, number)


class ShareAttempts:
    """Owned by the broker process.

    Invariant: ``_places`` counts those of ``_given``, which are in the order of their answers.
    """

    def __init__(self) -> None:
        self._given: OrderedDict[ReceiveAttempt, GivenPlaces] = OrderedDict()
        self._places = 0

    def find(self, attempt: ReceiveAttempt | None) -> GivenPlaces | None:
        """What an attempt was given; None: nothing that is remembered."""
        return None if attempt is None else self._given.get(attempt)

    def note(self, attempt: ReceiveAttempt | None, places: Iterable[TakenPlace], mark: int) -> None:
        """An attempt was given these; the oldest ones make way for it."""
        given = GivenPlaces(tuple(places), mark)
        if attempt is None or not given.places:
            return
        self._drop(attempt)
        self._given[attempt] = given
        self._places += len(given.places)
        while len(self._given) > ATTEMPTS_MAX or self._places > PLACES_MAX:
            self._drop(next(iter(self._given)))

    def _drop(self, attempt: ReceiveAttempt) -> None:
        given = self._given.pop(attempt, None)
        if given is not None:
            self._places -= len(given.places)
