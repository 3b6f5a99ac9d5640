"""Invariants of topics that change: what is shut takes nothing, what counts once is there once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgermq.formats.records.message import Message
from tests.simulator.checks.checker import CommittedMessage, NodeEntry, require

PREFIX = "changing-"


@dataclass(slots=True)
class ChangingTopic:
    """What its operator was told of a topic, and has asked for since; times are the simulator's.

    Attributes:
        is_there: its creation was acknowledged, and no deletion was asked for.
        shut_since: when it was acknowledged that it is closed, or gone; None once it is asked to be
            otherwise.
        once_since: the same of its window of de-duplication.
        ids: of its messages, by their unique ids, where the first one of each stands.
    """

    is_there: bool = False
    shut_since: int | None = None
    once_since: int | None = None
    ids: dict[str, CommittedMessage] = field(default_factory=dict)

    def asked(self, verb: str) -> None:
        """Something is about to be asked for, and may come about from now on."""
        if verb in ("create", "open"):
            self.shut_since = None
        if verb in ("delete", "every"):
            self.once_since = None
        if verb == "delete":
            self.is_there = False
            self.ids.clear()

    def done(self, verb: str, now: int) -> None:
        """It is acknowledged."""
        if verb in ("close", "delete"):
            self.shut_since = now
        if verb == "once":
            self.once_since = now
        if verb == "create":
            self.is_there = True


class _Sending(NamedTuple):
    topic: str
    unique_id: str
    since: int


class TopicChecker:
    """Knows who has sent what since when, by bodies: several messages have one unique id.

    Attributes:
        topics: by name; of one that is not in it nobody knows what became of the last change.
        refused, known: how many messages were refused because of what their topic is, and how many
            were told to be stored already: else nothing is looked at.
    """

    def __init__(self) -> None:
        self.now: Callable[[], int] = lambda: 0
        self.topics: dict[str, ChangingTopic] = {}
        self.refused = self.known = 0
        self._sent: dict[str, _Sending] = {}
        self._places: dict[str, CommittedMessage] = {}

    def sends(self, body: str, topic: str, unique_id: str) -> None:
        """A message is about to be sent, for the first time."""
        self._sent[body] = _Sending(topic, unique_id, self.now())

    def arrives(self, entry: NodeEntry, message: Message) -> None:
        """A message to a topic that changes is committed."""
        body, name = bytes(message.body).decode(), message.topic
        sent = self._sent[body]
        require(body not in self._places, "stored once", body, entry)
        require(sent.topic == name, "a message is stored where it was sent", body, entry, name)
        place = CommittedMessage(
            sent.unique_id, message.queue_id, message.queue_offset, message.physical_offset
        )
        self._places[body] = place
        topic = self.topics.get(name)
        if topic is None:
            return
        since = topic.shut_since
        is_shut = since is not None and sent.since >= since
        require(not is_shut, "what is closed, or gone, takes nothing", name, body, entry, since)
        if not topic.is_there:
            return
        since, known = topic.once_since, topic.ids.get(sent.unique_id)
        is_twice = since is not None and sent.since >= since and known is not None
        require(not is_twice, "a window is kept", name, body, entry, known, since)
        topic.ids.setdefault(sent.unique_id, place)

    def answered(self, body: str, place: CommittedMessage, *, is_known: bool) -> None:
        """The sender is told that a message is there, itself or one of its unique id."""
        sent = self._sent[body]
        if not is_known:
            own = self._places.get(body)
            require(own == place, "acknowledged is committed", body, place, own)
            return
        self.known += 1
        others = [one for one, at in self._places.items() if at == place]
        of_topic = [self._sent[one].topic for one in others]
        require(of_topic == [sent.topic], "what is known is in its topic", body, place, others)
