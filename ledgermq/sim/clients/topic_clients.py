"""Simulated operator of topics that change all the time, and producers who send to them anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from ledgermq.formats.records.message import Message
from ledgermq.formats.records.properties import UNIQ_KEY, encode_properties
from ledgermq.sim.checks.checker import CommittedMessage
from ledgermq.sim.checks.topic_checker import PREFIX, ChangingTopic, TopicChecker
from ledgermq.sim.clients.producer import SimulatedProducer
from ledgermq.sim.clients.service_clients import RETRY_MS, ServiceClient, is_unknown
from ledgermq.sim.machine.consumer_port import Outcome
from ledgermq.sim.world import World
from ledgermq.wire.send_frame import Sent
from ledgermq.wire.session import Refusal

CHANGERS = 2
TOPICS = 6
"""That each of them has at first."""

CURRENT = 2

IDS = 5
"""Unique ids of a topic's messages: few, so that most come again."""

THINK_MS = 200
WINDOW_MS = 86_400_000
"""More than clocks jump."""

VERBS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "create": ("topic_create", {"queues": 1}),
    "close": ("topic_alter", {"perm": 4}),
    "open": ("topic_alter", {"perm": 6}),
    "once": ("topic_alter", {"deduplication_window_ms": WINDOW_MS}),
    "every": ("topic_alter", {"deduplication_window_ms": 0}),
    "delete": ("topic_delete", {}),
}


class TopicChanger(ServiceClient):
    """Makes topics, closes and opens them, gives them windows, deletes them, and makes them again.

    One of which it does not know what became of its wish it leaves alone, and takes another: what
    it asked for may come later than what it would ask for next.

    Attributes:
        about: called before it asks for something.
        changed: called when it was told that something is done.
    """

    def __init__(self, world: World, number: int, topics: TopicChecker) -> None:
        super().__init__(world, f"changer{number}")
        self._own = first_topics(number)
        topics.topics.update((name, ChangingTopic(is_there=True)) for name in self._own)
        self.about: Callable[[], object] = lambda: None
        self.changed: Callable[[], object] = lambda: None
        self._topics = topics
        self._numbers = count(TOPICS)

    @property
    def current(self) -> list[str]:
        """Those that it changes now: few, so that each changes often."""
        if not self._own:
            self._own.append(f"{PREFIX}{self.name}-{next(self._numbers)}")
            self._topics.topics[self._own[-1]] = ChangingTopic()
        return self._own[:CURRENT]

    def act(self) -> None:
        """One change."""
        if self.is_stopped:
            return
        name = self.random.choice(self.current)
        topic = self._topics.topics[name]
        self._ask(name, topic, self._wish(topic))

    def _wish(self, topic: ChangingTopic) -> str:
        if not topic.is_there:
            return "create"
        other = "close" if topic.shut_since is None else "open"
        window = "once" if topic.once_since is None else "every"
        # Windows last a while, or no id would come twice within one.
        return self.random.choice((other, other, "once", window, "delete"))

    def _ask(self, name: str, topic: ChangingTopic, wish: str) -> None:
        verb, fields = VERBS[wish]

        def answered(outcome: Outcome | None) -> None:
            if isinstance(outcome, Mapping):
                topic.done(wish, self.world.events.now)
                self.world.events.trace(f"{name}: {wish} acknowledged")
                self.changed()
            elif is_unknown(outcome):
                self._topics.topics.pop(name)
                self._own.remove(name)
            self.soon(self.act, RETRY_MS if outcome is None else THINK_MS)

        self.about()
        topic.asked(wish)
        self.ask(verb, {"topic": name, **fields}, answered)


def first_topics(number: int) -> list[str]:
    """Those that a changer begins with."""
    return [f"{PREFIX}changer{number}-{at}" for at in range(TOPICS)]


class TopicSender:
    """What a producer sends to topics whatever they are, each unique id again and again."""

    def __init__(
        self,
        world: World,
        producer: SimulatedProducer,
        topics: TopicChecker,
        changers: Sequence[TopicChanger],
    ) -> None:
        self._changers = changers
        self._random = world.random
        self._name = producer.name
        self._topics = topics
        self._bodies: list[str] = []
        producer.make, producer.note, producer.gives_up = self._make, self._note, self._gives_up

    def _make(self, number: int) -> Sequence[Message]:
        """One message most times, which goes the writer's short way, or some to one topic."""
        random, topics = self._random, self._topics
        name = random.choice([one for changer in self._changers for one in changer.current])
        ids = random.sample(range(IDS), random.choice((1, 1, 1, 3)))
        self._bodies = [f"{self._name}-{number}-{at}" for at in range(len(ids))]
        found = []
        for body, one in zip(self._bodies, ids, strict=True):
            unique_id = f"{name}-{one}"
            topics.sends(body, name, unique_id)
            properties = encode_properties({UNIQ_KEY: unique_id})
            found.append(Message(topic=name, queue_id=0, body=body.encode(), properties=properties))
        return found

    def _note(self, sent: Sent, stored: Sequence[CommittedMessage]) -> None:
        known = {one.record for one in sent.duplicates}
        for at, (body, place) in enumerate(zip(self._bodies, stored, strict=True)):
            self._topics.answered(body, place, is_known=at in known)

    def _gives_up(self, refusal: Refusal) -> bool:
        """Its topic is gone, or closed."""
        self._topics.refused += not refusal.retriable and refusal.stored == "no"
        return not refusal.retriable
