"""Simulated members of a share group: they take, accept, keep, give back, and forget."""

from __future__ import annotations

from binascii import crc32
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ledgermq.broker.state.state_log import StateLog
from ledgermq.formats.records.message import Message, decode_message
from ledgermq.formats.records.properties import (
    MESSAGE_GROUP,
    encode_properties,
)
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.rules.tables.groups import ORDERED
from ledgermq.verbs.shares import ReceivedMessages, ReceiveShared, SharedMessage
from tests.simulator.checks.share_checker import FreshOf, HandedOut, ShareChecker
from tests.simulator.clients.service_clients import (
    RETRY_MS,
    THINK_MS,
    ServiceClient,
    is_undone,
    is_unknown,
)
from tests.simulator.machine.consumer_port import Outcome
from tests.simulator.node import TOPIC, Node
from tests.simulator.world import World

GROUP = "sharers"
HELD_MAX = 12
FORGETS_FRACTION = 0.05
"""Share of its acts with which a member forgets all that it has, as if it had been killed."""

TRIES_MAX = 1_000
"""A message may be handed out so often: dead letters are other runs' matter."""


KEYS = 8


def with_keys(messages: Sequence[Message]) -> list[Message]:
    """The same messages with keys, but for some of them."""
    found: list[Message] = []
    for message in messages:
        properties = message.parsed_properties()
        key = crc32(message.unique_id.encode()) % (KEYS + 1)
        if key < KEYS:
            properties[MESSAGE_GROUP] = f"k{key}"
        found.append(replace(message, properties=encode_properties(properties)))
    return found


class Sharer(ServiceClient):
    """One member."""

    def __init__(self, world: World, name: str, shares: ShareChecker) -> None:
        super().__init__(world, name)
        self._shares = shares
        self._held: list[HandedOut] = []
        self._is_prepared = False

    def act(self) -> None:
        """Take messages, or say what is to become of some; when all is over only accept."""
        chance = self.random.random()
        if not self._is_prepared:
            self._prepare()
        elif chance < FORGETS_FRACTION:
            self._shares.forgets(self._held)
            self._held.clear()
            self._go_on()
        elif self._held and (chance < 0.6 or len(self._held) >= HELD_MAX):
            self._settle()
        else:
            self._receive()

    def _go_on(self) -> None:
        self.soon(self.act, RETRY_MS if self.is_stopped else THINK_MS)

    def _prepare(self) -> None:
        def answered(outcome: Outcome | None) -> None:
            self._is_prepared = isinstance(outcome, Mapping)
            self._go_on()

        fields = {"retryMaxTimes": TRIES_MAX, ORDERED: self._shares.is_ordered}
        self.ask("group_create", {"group": GROUP, "fields": fields}, answered)

    def _receive(self) -> None:
        leaders = self.world.leaders()
        if not (self._shares.has_priorities and leaders):
            self._ask_for_some(None, lambda taken: self._go_on())
            return
        leader = leaders[-1]
        life = _life(leader)

        def shown_before(outcome: Outcome | None) -> None:
            before = _fresh(outcome)
            self._ask_for_some(leader, lambda taken: look_behind(before, taken))

        def look_behind(before: FreshOf, taken: list[SharedMessage]) -> None:
            def shown(outcome: Outcome | None) -> None:
                # What one life of a broker knows only grows.
                if _life(leader) is life:
                    given = [(told.queue, told.offset) for told in taken]
                    self._shares.goes_by_priority(before, given, _fresh(outcome))
                self._go_on()

            if before and taken:
                self.ask("share_show", {"group": GROUP}, shown, whom=leader)
            else:
                self._go_on()

        self.ask("share_show", {"group": GROUP}, shown_before, whom=leader)

    def _ask_for_some(self, whom: Node | None, then: Callable[[list[SharedMessage]], None]) -> None:
        """Take messages, and accept some by that; ``then`` is told those that there are."""
        asked_at = self._shares.now()
        done = self._held[: len(self._held) // 3] if len(self._held) >= HELD_MAX // 2 else []
        for one in done:
            self._shares.asks(one)

        def answered(outcome: Outcome | None) -> None:
            taken = ReceivedMessages()
            if isinstance(outcome, Mapping):
                taken = asked.told(outcome)
                self._accept(done, taken.late or ())
                self._take(taken, asked_at)
            else:
                _check(outcome)
            then(taken)

        asked = ReceiveShared(
            GROUP,
            TOPIC,
            self.random.randint(1, 6),
            invisible_ms=self.random.choice((200, 800, 2_000)),
            wait_ms=self.random.choice((0, 0, 400)),
            accept=[one.handle for one in done] or None,
        )
        self.ask(asked.NAME, asked.arguments(), answered, whom=whom)

    def _accept(self, done: Sequence[HandedOut], late: Collection[str]) -> None:
        """What was to be accepted by a receive that is answered."""
        for one in done:
            if one.handle in late:
                self._shares.is_over(one)
            else:
                self._shares.accepts(one, by_other=False)
            if one in self._held:
                self._held.remove(one)

    def _take(self, taken: list[SharedMessage], asked_at: int) -> None:
        for told in taken:
            key = decode_message(told.record).parsed_properties().get(MESSAGE_GROUP)
            place = told.queue, told.offset
            one = HandedOut(told.handle, place, told.delivery, told.until, key)
            self._shares.hands_out(one, asked_at)
            self._held.append(one)

    def _settle(self) -> None:
        some = self.random.sample(self._held, self.random.randint(1, len(self._held)))
        acts = (
            ("accept",) if self.is_stopped else ("accept", "accept", "release", "extend", "return")
        )
        action = self.random.choice(acts)
        for one in some:
            if action == "accept":
                self._shares.asks(one)
            elif action != "extend":
                one.is_given_back = True

        def answered(outcome: Outcome | None) -> None:
            if isinstance(outcome, Mapping):
                self._note(action, some, outcome)
            else:
                _check(outcome)
            self._go_on()

        asked = {
            "group": GROUP,
            "action": action,
            "handles": [one.handle for one in some],
            "delay_ms": self.random.choice((0, 150, 600)),
        }
        self.ask("share_settle", asked, answered)

    def _note(self, action: str, some: list[HandedOut], answer: Mapping[str, Any]) -> None:
        for one, row in zip(some, answer["handles"], strict=True):
            outcome = row["outcome"]
            if outcome == "over":
                self._shares.is_over(one)
            elif outcome == "settled" or action == "accept":
                self._shares.accepts(one, by_other=outcome == "settled")
            elif action == "extend":
                one.until = row["until"]
                continue
            if one in self._held:
                self._held.remove(one)


def _life(node: Node) -> StateLog | None:
    return None if node.readers is None else node.readers.log


def _fresh(outcome: Outcome | None) -> FreshOf:
    """What nobody has looked at, by queue; nothing where nobody has told."""
    if not isinstance(outcome, Mapping):
        return {}
    shown: Mapping[str, Any] = outcome
    return {row["queue"]: range(row["next"], row["end"]) for row in shown["queues"]}


def _check(outcome: Outcome | None) -> None:
    """Bear what a client has to: nobody leads, nobody knows, or the level is not in force yet."""
    is_borne = is_undone(outcome) or is_unknown(outcome) or isinstance(outcome, ConfigError)
    if not is_borne:
        assert isinstance(outcome, LedgerError), outcome
        raise outcome
