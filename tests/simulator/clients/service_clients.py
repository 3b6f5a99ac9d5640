"""Simulated clients of the broker's services, drawn from the run's seed.

Each has one thing under way at a time. What has no answer may have happened, or may happen yet: it
is asked again where that is harmless, and else counts as doubtful.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from ledgermq.formats.records.delayed_message import RealQueue, level_properties, timer_properties
from ledgermq.formats.records.message import Message
from ledgermq.formats.records.properties import (
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    encode_properties,
)
from ledgermq.model.errors import (
    BusyError,
    LedgerError,
    MessageIllegalError,
    NotLeaderError,
    OutcomeUnknownError,
)
from ledgermq.model.limits import DELAY_TOPIC, TIMER_TOPIC
from ledgermq.model.names.transactions import HALF_TOPIC, Decision
from ledgermq.wire.send_frame import Sent
from ledgermq.wire.session import Refusal
from tests.simulator.checks.checker import CommittedMessage
from tests.simulator.checks.service_checker import SentMessage, ServiceChecker
from tests.simulator.checks.topic_checker import PREFIX, ChangingTopic, TopicChecker
from tests.simulator.clients.producer import SimulatedProducer
from tests.simulator.machine.consumer_port import Outcome
from tests.simulator.machine.events import EPOCH_NS, MS
from tests.simulator.node import QUEUES, TOPIC, Node
from tests.simulator.world import World

PATIENCE_NS = 3_000 * MS
"""Longer than a proposal lives: what has no answer by then is decided, or its leader is gone."""

THINK_MS = 120
RETRY_MS = 60
FAR_MS = 3_600_000
LEVELS_USED = 5
GROUP = "workers"
PRODUCERS = "payers"
LEVEL_FAR = 6

Then = Callable[[Outcome | None], None]
"""Takes a result, a refusal, or None when nobody answered."""

CHANGERS = 2

TOPICS = 6
"""Topics that each changer has at first."""

CURRENT = 2

IDS = 5
"""Unique ids of a topic's messages: few, so that most come again."""

CHANGE_THINK_MS = 200

CUT_MS = (300, 600, 1_200)
"""How long who sent something hears nothing, while the window of its topic ends."""

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


class ServiceClient:
    """Asks the leader's broker, if it can find it.

    Attributes:
        is_stopped: asks nothing new.
        told: called when it was told that something is done.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = world.random
        self.is_stopped = False
        self.told: Callable[[], None] = lambda: None
        self._asked = 0

    def begin(self) -> None:
        """Act from now on, again and again."""
        self.soon(self.act, THINK_MS)

    def act(self) -> None:
        """The next thing to ask for."""
        raise NotImplementedError

    def soon(self, step: Callable[[], None], limit_ms: int) -> None:
        """Take ``step`` within so many milliseconds."""
        self.world.events.after(self.random.randrange(1, limit_ms) * MS, step)

    def ask(
        self,
        verb: str,
        arguments: Mapping[str, object],
        then: Then,
        *,
        whom: Node | None = None,
    ) -> None:
        """Call ``verb`` at ``whom``; without it at the leader, or at any node. ``then`` is called
        once.
        """
        self._asked += 1
        number = self._asked
        leaders = self.world.leaders()
        nodes = list(self.world.nodes.values())
        finds = leaders and self.random.random() < 0.95
        node = leaders[-1] if finds else self.random.choice(nodes)
        node = whom or node
        port = None if node.readers is None else node.readers.port

        def once(outcome: Outcome | None) -> None:
            if number == self._asked:
                self._asked += 1
                then(outcome)
                if isinstance(outcome, Mapping):
                    self.told()

        if port is None:
            # Nobody was asked.
            self.soon(lambda: once(NotLeaderError("nobody is there")), RETRY_MS)
            return
        port.delay_ns = self.world.network.weather.delay_ns
        port.ask(verb, arguments, once)
        self.world.events.after(PATIENCE_NS, lambda: once(None))


def is_undone(outcome: Outcome | None) -> bool:
    """Whether nothing came of what was asked, and nothing will."""
    return isinstance(outcome, NotLeaderError | BusyError)


def is_unknown(outcome: Outcome | None) -> bool:
    """Whether nobody knows what came of it."""
    return outcome is None or isinstance(outcome, OutcomeUnknownError)


class Committer(ServiceClient):
    """A consumer of one queue that stores how far it is.

    Attributes:
        acknowledged: the highest offset that it was told is stored.
    """

    def __init__(self, world: World, name: str, queue_id: int) -> None:
        super().__init__(world, name)
        self.queue_id = queue_id
        self.acknowledged = 0
        self._offset = 0

    def act(self) -> None:
        if self.is_stopped:
            return
        end = self.world.checker.next_offset(TOPIC, self.queue_id)
        self._offset = min(end, self._offset + self.random.randint(0, 5))
        offset = self._offset
        self.ask(
            "group_commit",
            {"group": self.name, "topic": TOPIC, "offsets": {str(self.queue_id): offset}},
            lambda outcome: self._committed(offset, outcome),
        )

    def _committed(self, offset: int, outcome: Outcome | None) -> None:
        if isinstance(outcome, Mapping):
            self.acknowledged = offset
        self.soon(self.act, THINK_MS)


class Makers:
    """Makes the messages of producers: delayed ones, timers, halves."""

    def __init__(self, world: World, checker: ServiceChecker) -> None:
        self.world = world
        self.checker = checker
        self.random = world.random

    def delayed(self, name: str, number: int) -> list[Message]:
        """Messages of one delay level."""
        level = LEVEL_FAR if self.random.random() < 0.1 else self.random.randint(1, LEVELS_USED)
        due_ms = 0 if level < LEVEL_FAR else self._now_ms() + FAR_MS
        found = []
        for at in range(self.random.randint(1, 3)):
            unique_id, real = f"{name}-{number}-{at}", self._real()
            self.checker.plan(unique_id, SentMessage(DELAY_TOPIC, TOPIC, due_ms))
            properties = {UNIQ_KEY: unique_id, **level_properties(level, real)}
            found.append(_message(DELAY_TOPIC, level - 1, unique_id, properties))
        return found

    def timers(self, name: str, number: int) -> list[Message]:
        """Messages with times of their own: soon, past, and far ahead."""
        found = []
        for at in range(self.random.randint(1, 4)):
            ahead_ms = self.random.choice((-500, 50, 400, 1_500, 3_000, FAR_MS))
            unique_id, real = f"{name}-{number}-{at}", self._real()
            due_ms = self._now_ms() + self.random.randrange(100) + ahead_ms
            self.checker.plan(unique_id, SentMessage(TIMER_TOPIC, TOPIC, due_ms))
            properties = {**timer_properties(due_ms, real), UNIQ_KEY: unique_id}
            found.append(_message(TIMER_TOPIC, 0, unique_id, properties))
        return found

    def halves(self, name: str, number: int) -> list[Message]:
        """The half messages of one transaction."""
        transaction = f"t-{name}-{number}"
        found = []
        for at in range(self.random.randint(1, 3)):
            unique_id, real = f"{name}-{number}-{at}", self._real()
            self.checker.plan(unique_id, SentMessage(HALF_TOPIC, TOPIC, 0, transaction))
            properties = {
                UNIQ_KEY: unique_id,
                TRANSACTION_PREPARED: "true",
                PRODUCER_GROUP: PRODUCERS,
                TRANSACTION_ID: transaction,
                REAL_TOPIC: real.topic,
                REAL_QUEUE_ID: str(real.queue_id),
            }
            found.append(_message(HALF_TOPIC, 0, unique_id, properties))
        return found

    def _real(self) -> RealQueue:
        return RealQueue(TOPIC, self.random.randrange(QUEUES))

    def _now_ms(self) -> int:
        return (EPOCH_NS + self.world.events.now) // MS


class Canceller(ServiceClient):
    """Takes back some of the timers whose sending was acknowledged."""

    def __init__(self, world: World, name: str, checker: ServiceChecker) -> None:
        super().__init__(world, name)
        self._checker = checker
        self._known: list[str] = []

    def take(self, stored: Sequence[CommittedMessage]) -> None:
        """These wait, or have waited."""
        self._known += [one.unique_id for one in stored]

    def act(self) -> None:
        if self.is_stopped:
            return
        if not self._known:
            self.soon(self.act, THINK_MS)
            return
        # The newest mostly: the others are delivered.
        at = -1 if self.random.random() < 0.7 else self.random.randrange(len(self._known))
        self._cancel(self._known.pop(at))

    def _cancel(self, unique_id: str) -> None:
        self._checker.doubtful.add(unique_id)
        self.ask(
            "timer_cancel", {"id": unique_id}, lambda outcome: self._answered(unique_id, outcome)
        )

    def _answered(self, unique_id: str, outcome: Outcome | None) -> None:
        if isinstance(outcome, Mapping):
            self._checker.cancels(unique_id)
        elif isinstance(outcome, MessageIllegalError):
            # It was delivered, or an earlier attempt has come through after all.
            pass
        elif is_undone(outcome) or self.random.random() < 0.5:
            self.soon(lambda: self._cancel(unique_id), RETRY_MS)
            return
        self.soon(self.act, THINK_MS)


class Ender(ServiceClient):
    """Ends most transactions; asks until it is told that it has."""

    def __init__(self, world: World, name: str, checker: ServiceChecker) -> None:
        super().__init__(world, name)
        self._checker = checker
        self._open: list[tuple[str, int, int]] = []

    def take(self, stored: Sequence[CommittedMessage]) -> None:
        """The half messages of one transaction are stored."""
        sent = self._checker.sent_as[stored[0].unique_id]
        self._open.append((sent.transaction, len(stored), stored[-1].queue_offset))

    def act(self) -> None:
        """End one; one in eight never ends."""
        if self._open:
            transaction, messages, offset = self._open.pop(0)
            if self.random.random() < 0.875:
                decision = self.random.choice((Decision.COMMIT, Decision.COMMIT, Decision.ROLLBACK))
                self._checker.transactions[transaction].asked = decision
                self._end(transaction, messages, offset, decision)
                return
        if not self.is_stopped or self._open:
            self.soon(self.act, THINK_MS)

    def _end(self, transaction: str, messages: int, offset: int, decision: Decision) -> None:
        def answered(outcome: Outcome | None) -> None:
            if isinstance(outcome, Mapping):
                self._checker.ends(transaction)
            elif is_undone(outcome) or is_unknown(outcome):
                again = lambda: self._end(transaction, messages, offset, decision)  # noqa: E731
                self.soon(again, RETRY_MS)
                return
            else:
                assert isinstance(outcome, LedgerError)
                raise outcome
            self.soon(self.act, THINK_MS)

        asked = {
            "group": PRODUCERS,
            "transaction": transaction,
            "decision": decision.value,
            "messages": messages,
            "offset": offset,
        }
        self.ask("transaction_end", asked, answered)


class Returner(ServiceClient):
    """A consumer that cannot process some messages, and gives them back, each once."""

    def __init__(self, world: World, name: str, checker: ServiceChecker) -> None:
        super().__init__(world, name)
        self._checker = checker

    def act(self) -> None:
        """Give one back that is committed; asked with one token until the answer comes."""
        if self.is_stopped:
            return
        checker = self._checker
        known = [one for one in sorted(checker.acknowledged) if one not in checker.sent_as]
        if not known:
            self.soon(self.act, THINK_MS)
            return
        stored = checker.messages[self.random.choice(known)]
        checker.sent_as[stored.unique_id] = SentMessage(TOPIC, TOPIC)
        self._give_back(stored)

    def _give_back(self, stored: CommittedMessage) -> None:
        def answered(outcome: Outcome | None) -> None:
            if isinstance(outcome, Mapping):
                self._checker.given_back.add(stored.unique_id)
            else:
                self.soon(lambda: self._give_back(stored), RETRY_MS)
                return
            self.soon(self.act, THINK_MS)

        asked = {
            "group": GROUP,
            "topic": TOPIC,
            "queue": stored.queue_id,
            "offset": stored.queue_offset,
            "delay_level": self.random.randint(0, 3),
            "token": stored.unique_id,
        }
        self._checker.asked_back[stored.unique_id] += 1
        self.ask("send_back", asked, answered)


class Operator(ServiceClient):
    """Makes, changes and deletes topics and groups, and has queues locked.

    Attributes:
        topics: its own ones, and whether each is there; None when nobody knows.
    """

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.topics: dict[str, bool | None] = {}
        self._numbers = count()

    def act(self) -> None:
        if self.is_stopped:
            return
        act = self.random.choice((self._topic, self._topic, self._group, self._lock))
        act()

    def _topic(self) -> None:
        known = sorted(self.topics)
        if len(known) < 4 or self.random.random() < 0.3:
            name, verb = f"{self.name}-{next(self._numbers)}", "topic_create"
        else:
            name = self.random.choice(known)
            verb = self.random.choice(("topic_create", "topic_alter", "topic_delete"))
        asked: dict[str, object] = {"topic": name}
        if verb != "topic_delete":
            asked |= {"queues": self.random.randint(4, 8)}
        before, self.topics[name] = self.topics.get(name, False), None

        def answered(outcome: Outcome | None) -> None:
            if isinstance(outcome, Mapping):
                self.topics[name] = verb != "topic_delete"
            elif not is_unknown(outcome):
                self.topics[name] = before
            self.soon(self.act, THINK_MS)

        self.ask(verb, asked, answered)

    def _group(self) -> None:
        name = f"{self.name}-{self.random.randrange(4)}"
        verb = self.random.choice(("group_create", "group_alter", "group_delete"))
        asked: dict[str, object] = {"group": name}
        if verb != "group_delete":
            asked |= {"fields": {"retryMaxTimes": self.random.randint(1, 16)}}
        self.ask(verb, asked, lambda _: self.soon(self.act, THINK_MS))

    def _lock(self) -> None:
        verb = self.random.choice(("queue_lock", "queue_lock", "queue_unlock"))
        asked: dict[str, object] = {
            "group": GROUP,
            "client": f"c{self.random.randrange(3)}",
            "queues": {TOPIC: [self.random.randrange(QUEUES)]},
        }
        self.ask(verb, asked, lambda _: self.soon(self.act, THINK_MS))


def _message(topic: str, queue_id: int, unique_id: str, properties: Mapping[str, str]) -> Message:
    return Message(
        topic=topic,
        queue_id=queue_id,
        body=unique_id.encode(),
        properties=encode_properties(properties),
    )


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
            self.soon(self.act, RETRY_MS if outcome is None else CHANGE_THINK_MS)

        self.about()
        topic.asked(wish)
        self.ask(verb, {"topic": name, **fields}, answered)


class WindowEnder(TopicChanger):
    """Gives one topic a window, and ends it.

    Attributes:
        wants_window: whether its topic is to have one.
    """

    def __init__(self, world: World, number: int, topics: TopicChecker) -> None:
        super().__init__(world, number, topics)
        self.wants_window = True

    def act(self) -> None:
        if self.is_stopped:
            return
        name = self.current[0]
        topic = self._topics.topics[name]
        if not topic.is_there:
            self._ask(name, topic, "create")
        elif self.wants_window == (topic.once_since is None):
            self._ask(name, topic, "once" if self.wants_window else "every")
        else:
            self.soon(self.act, RETRY_MS)


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
        topics = self._topics
        name, ids = self._draw(number)
        self._bodies = [f"{self._name}-{number}-{at}" for at in range(len(ids))]
        found = []
        for body, unique_id in zip(self._bodies, ids, strict=True):
            topics.sends(body, name, unique_id)
            properties = encode_properties({UNIQ_KEY: unique_id})
            found.append(Message(topic=name, queue_id=0, body=body.encode(), properties=properties))
        return found

    def _draw(self, number: int) -> tuple[str, Sequence[str]]:
        """A topic, and the unique ids of a frame to it."""
        del number
        random = self._random
        name = random.choice([one for changer in self._changers for one in changer.current])
        ids = random.sample(range(IDS), random.choice((1, 1, 1, 3)))
        return name, [f"{name}-{one}" for one in ids]

    def _note(self, sent: Sent, stored: Sequence[CommittedMessage]) -> None:
        known = {one.record for one in sent.duplicates}
        for at, (body, place) in enumerate(zip(self._bodies, stored, strict=True)):
            self._topics.answered(body, place, is_known=at in known)

    def _gives_up(self, refusal: Refusal) -> bool:
        """Its topic is gone, or closed."""
        self._topics.refused += not refusal.retriable and refusal.stored == "no"
        return not refusal.retriable


class CutSender(TopicSender):
    """Sends messages behind one that is left out, and hears of it when its topic has no window.

    Attributes:
        ended: how many of these frames were answered after their window.
    """

    def __init__(
        self, world: World, producer: SimulatedProducer, topics: TopicChecker, ender: WindowEnder
    ) -> None:
        super().__init__(world, producer, topics, [ender])
        self.ended = 0
        self._events = world.events
        self._producer = producer
        self._ender = ender
        self._cut = ""

    def go_on(self) -> None:
        """Send again, though producers were stopped."""
        self._producer.is_stopped = False
        self._producer.cut_off(1)

    def stop(self) -> None:
        """Send nothing new."""
        self._producer.is_stopped = True

    def _draw(self, number: int) -> tuple[str, Sequence[str]]:
        name, new = self._ender.current[0], f"{self._name}-{number}"
        topic = self._topics.topics[name]
        self._cut = ""
        self._ender.wants_window = topic.once_since is None or not topic.ids
        if self._ender.wants_window:
            return name, [new]
        self._cut = name
        for_ns = self._random.choice(CUT_MS) * MS
        # First it is sent, and what was sent arrives.
        self._events.after(1, lambda: self._producer.cut_off(for_ns))
        return name, [self._random.choice(sorted(topic.ids)), f"{new}-1", f"{new}-2"]

    def _note(self, sent: Sent, stored: Sequence[CommittedMessage]) -> None:
        super()._note(sent, stored)
        topic = self._topics.topics.get(self._cut)
        self.ended += topic is not None and topic.once_since is None
