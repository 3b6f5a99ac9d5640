"""Wrong calls of a client, as a beginner makes them: each is told by its name what was wrong.

The error is of our own kinds, and names what was given, and the way on: the limit, what is allowed,
or what to do instead. None waits for its time: a client that does not notice would wait for longer
than a test may take, or return.
"""

from __future__ import annotations

import asyncio
import datetime
import pickle
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from ledgermq.client import (
    Admin,
    Consumer,
    DeadLetters,
    GroupConsumer,
    MessageFilter,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    Queries,
    Requester,
    ShareConsumer,
    TopicQueue,
    TransactionalProducer,
)
from ledgermq.client.aio import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncGroupConsumer,
    AsyncProducer,
    AsyncRequester,
)
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.model.errors import (
    ClosedError,
    ConfigError,
    FilterIllegalError,
    GroupActiveError,
    GroupUnknownError,
    LedgerError,
    MessageIllegalError,
    NameUnknownError,
    TimedOutError,
    TopicUnknownError,
    UnreachableError,
)
from tests.process.client_node import start_client_node
from tests.process.conftest import nodes_made
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC = "orders"
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


@dataclass(frozen=True)
class Place:
    """A node with topic ``orders`` of four queues, and where nobody is.

    Attributes:
        address: of the node's unix sockets.
        nobody: an address at which nobody listens.
        folder: one without sockets.
    """

    address: str
    nobody: str
    folder: str


class Wrong(NamedTuple):
    """A call, the kind of error, and what its text has, each a part of it."""

    call: Callable[[Place], object]
    kind: type[Exception]
    says: tuple[str, ...]


def sent(topic: Any = TOPIC, body: Any = b"x", **options: Any) -> Callable[[Place], object]:
    """Send a message."""

    def send(place: Place) -> object:
        with Producer(place.address) as producer:
            return producer.send(topic, body, **options).result(PATIENCE_S)

    return send


def sent_all(messages: Any, topic: Any = TOPIC, **options: Any) -> Callable[[Place], object]:
    """Send a batch."""

    def send(place: Place) -> object:
        with Producer(place.address) as producer:
            return producer.send_batch(topic, messages, **options).result(PATIENCE_S)

    return send


def sent_to(address: Any) -> Callable[[Place], object]:
    """Send to another address; ``{…}`` in it is of the place."""

    def send(place: Place) -> object:
        to = address.format(**vars(place)) if isinstance(address, str) else address
        with Producer(to) as producer:
            return producer.send(TOPIC, b"x").result(PATIENCE_S)

    return send


def read(timeout: float = 1.0, **options: Any) -> Callable[[Place], object]:
    """Read a topic."""

    def poll(place: Place) -> object:
        with Consumer(place.address, **{"topic": TOPIC, **options}) as consumer:
            return consumer.poll(timeout)

    return poll


def joined(
    use: Callable[[GroupConsumer], object], group: Any = "members"
) -> Callable[[Place], object]:
    """Be a member of a group."""

    def join(place: Place) -> object:
        with GroupConsumer(place.address, group=group) as member:
            return use(member)

    return join


def polled(*subscription: Any, group: Any = "members") -> Callable[[Place], object]:
    """Poll as a member that has subscribed so."""
    return joined(lambda member: (member.subscribe(*subscription), member.poll(PATIENCE_S)), group)


def administered(use: Callable[[Admin], object]) -> Callable[[Place], object]:
    """Give an order to the node."""

    def order(place: Place) -> object:
        with Admin(place.address, timeout_s=PATIENCE_S) as admin:
            return use(admin)

    return order


def closed(make: Callable[[str], Any], use: Callable[[Any], object]) -> Callable[[Place], object]:
    """Use a client that was closed, and had asked nothing before."""

    def used(place: Place) -> object:
        client = make(place.address)
        client.close()
        return use(client)

    return used


def transacted(use: Callable[[TransactionalProducer], object]) -> Callable[[Place], object]:
    """Use a transactional producer."""

    def transact(place: Place) -> object:
        with TransactionalProducer(place.address, group="payers") as producer:
            return use(producer)

    return transact


def _seek_early(member: GroupConsumer) -> object:
    member.subscribe(TOPIC)
    member.poll(0.1)
    return member.seek(TopicQueue(TOPIC, 99), 0)


def unopened(
    make: Callable[[str], Any], use: Callable[[Any], Awaitable[object]]
) -> Callable[[Place], object]:
    """Use a client of a loop that was not opened by ``async with``."""

    async def used(place: Place) -> object:
        return await use(make(place.address))

    return lambda place: asyncio.run(used(place))


def _in_two_loops(place: Place) -> object:
    producer = AsyncProducer(place.address)

    async def opened() -> None:
        await producer.__aenter__()
        await producer.send(TOPIC, b"x")

    asyncio.run(opened())
    return asyncio.run(producer.send(TOPIC, b"x"))


def _ended(producer: TransactionalProducer) -> object:
    transaction = producer.transaction()
    transaction.send(TOPIC, b"x")
    transaction.commit()
    return transaction.send(TOPIC, b"late")


def _commit_ended(producer: TransactionalProducer) -> object:
    transaction = producer.transaction()
    transaction.send(TOPIC, b"x")
    transaction.commit()
    return transaction.rollback()


def _retry_without_group(place: Place) -> object:
    with Producer(place.address) as producer:
        producer.send(TOPIC, b"x").result(PATIENCE_S)
    with Consumer(place.address, topic=TOPIC) as consumer:
        return consumer.retry_later(next(iter(consumer)))


def _reply_to_no_request(place: Place) -> object:
    with Producer(place.address) as producer, Consumer(place.address, topic="other") as consumer:
        producer.send("other", b"x").result(PATIENCE_S)
        return producer.reply(next(iter(consumer)), b"answer")


def shared(use: Callable[[ShareConsumer], object], topic: str = TOPIC) -> Callable[[Place], object]:
    """Be a member of a share group."""

    def take(place: Place) -> object:
        with Producer(place.address) as producer:
            producer.send(TOPIC, b"x").result(PATIENCE_S)
        with ShareConsumer(place.address, group="sharers", topic=topic) as member:
            return use(member)

    return take


def _accept_twice(member: ShareConsumer) -> None:
    (message, *_) = member.poll(PATIENCE_S)
    member.accept(message)
    member.accept(message)


def _share_of_members(place: Place) -> object:
    with (
        GroupConsumer(place.address, group="members") as queue_by_queue,
        ShareConsumer(place.address, group="members", topic=TOPIC) as member,
    ):
        queue_by_queue.subscribe(TOPIC)
        queue_by_queue.poll(1)
        return member.poll(1)


def _polled_consumer(place: Place) -> Consumer:
    consumer = Consumer(place.address, topic=TOPIC)
    consumer.poll(0.1)
    return consumer


def _forked(place: Place) -> object:
    """In a program of its own: this process has threads."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORK, place.address],
        capture_output=True,
        text=True,
        check=True,
    )
    raise ClosedError(done.stdout)


_FORK = """
import os, sys
from ledgermq.client import LedgerError, Producer
producer = Producer(sys.argv[1])
if not os.fork():
    try:
        producer.send("orders", b"x")
    except LedgerError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


def _of_two_threads(place: Place) -> object:
    """Of two that poll at once, until one is refused."""
    with Consumer(place.address, topic="other", start="last") as consumer:
        with ThreadPoolExecutor(2) as threads:
            polls = [threads.submit(consumer.poll, 0.5) for _ in range(2)]
        return [poll.result() for poll in polls]


WRONG: dict[str, Wrong] = {
    # Addresses.
    "no scheme": Wrong(sent_to("127.0.0.1:10922"), ConfigError, ("127.0.0.1:10922", "tcp://HOST")),
    "http": Wrong(sent_to("http://127.0.0.1:1"), ConfigError, ("http://127.0.0.1:1", "tcp://HOST")),
    "empty address": Wrong(sent_to(""), ConfigError, ("''", "tcp://HOST")),
    "no address": Wrong(sent_to(None), ConfigError, ("None", "ipc://")),
    "address of bytes": Wrong(sent_to(b"tcp://127.0.0.1:1"), ConfigError, ("not a text",)),
    "a number": Wrong(sent_to(10922), ConfigError, ("10922",)),
    "no addresses": Wrong(sent_to([]), ConfigError, ("no address", "ipc://")),
    "same address twice": Wrong(
        sent_to("{nobody},{nobody}"), ConfigError, ("same node stands twice", "{nobody}")
    ),
    "no port": Wrong(
        sent_to("tcp://127.0.0.1"), ConfigError, ("tcp://127.0.0.1", "tcp://HOST:PORT")
    ),
    "port 0": Wrong(sent_to("tcp://127.0.0.1:0"), ConfigError, ("tcp://127.0.0.1:0", "1 to 65535")),
    "port 70000": Wrong(sent_to("tcp://127.0.0.1:70000"), ConfigError, ("70000", "1 to 65535")),
    "port of letters": Wrong(sent_to("tcp://127.0.0.1:http"), ConfigError, (":http", "1 to 65535")),
    "any host": Wrong(sent_to("tcp://*:10922"), ConfigError, ("tcp://*:10922", "listens")),
    "relative folder": Wrong(sent_to("ipc://run/x"), ConfigError, ("no absolute", "ipc://run/x")),
    "long folder": Wrong(sent_to("ipc:///" + "x" * 120), ConfigError, ("too long", "limit=107")),
    "no such file of keys": Wrong(
        sent_to("tcp://127.0.0.1:1?keys=/none"), ConfigError, ("/none", "No such file")
    ),
    "misspelt option": Wrong(
        sent_to("tcp://127.0.0.1:1?key=/none"), ConfigError, ("?key=/none", "?keys=FILE")
    ),
    "IPv6 without brackets": Wrong(
        sent_to("tcp://::1:10922"), ConfigError, ("tcp://::1:10922", "tcp://[::1]:10922")
    ),
    "resolve_s out of range": Wrong(
        sent_to("tcp://n0:1?resolve_s=0"), ConfigError, ("resolve_s", "minimum=1")
    ),
    "nobody listens": Wrong(sent_to("{nobody}"), UnreachableError, ("{nobody}", "refused")),
    "a folder without sockets": Wrong(
        sent_to("ipc://{folder}"),
        UnreachableError,
        ("{folder}", "no such socket", "listen.runtime_dir"),
    ),
    "an unknown name": Wrong(
        sent_to("tcp://no.such.host.invalid:1"), NameUnknownError, ("no.such.host.invalid",)
    ),
    # Topics and bodies.
    "topic with a space": Wrong(sent("a b"), MessageIllegalError, ("'a b'", "a-z A-Z 0-9")),
    "topic without letters": Wrong(sent(""), MessageIllegalError, ("empty", "limit=127")),
    "topic too long": Wrong(sent("x" * 128), MessageIllegalError, ("size=128", "limit=127")),
    "topic with umlauts": Wrong(sent("bücher"), MessageIllegalError, ("bücher", "a-z A-Z 0-9")),
    "topic of bytes": Wrong(sent(b"orders"), MessageIllegalError, ("not a text", "b'orders'")),
    "no topic": Wrong(sent(None), MessageIllegalError, ("not a text", "None")),
    "unknown topic": Wrong(sent("nothing"), TopicUnknownError, ("nothing",)),
    "body too large": Wrong(
        sent(body=bytes(5 << 20)), MessageIllegalError, ("size=5242880", "limit=", "setting=")
    ),
    # Options of a message.
    "key with a space": Wrong(sent(keys=["a b"]), MessageIllegalError, ("a b",)),
    "delay below 0": Wrong(sent(delay=-5), MessageIllegalError, ("-5",)),
    "delay of 2 years": Wrong(
        sent(delay=2 * YEAR_MS), MessageIllegalError, (str(2 * YEAR_MS), "limit=")
    ),
    "two times of delivery": Wrong(sent(delay=5, delay_level=2), MessageIllegalError, ("delay",)),
    "delay level below 0": Wrong(sent(delay_level=-1), MessageIllegalError, ("-1",)),
    "time without a zone": Wrong(
        sent(deliver_at=datetime.datetime(2030, 1, 1)), MessageIllegalError, ("zone",)
    ),
    "queue 99": Wrong(sent(queue_id=99), TopicUnknownError, ("99", "limit=3")),
    "queue below 0": Wrong(sent(queue_id=-1), TopicUnknownError, ("-1", "limit=3")),
    "queue key of a number": Wrong(sent(queue_key=5), MessageIllegalError, ("queue_key", "5")),
    "flag too large": Wrong(sent(flag=2**31), MessageIllegalError, ("flag is", str(2**31))),
    "id with a space": Wrong(
        sent(unique_id="a b"), MessageIllegalError, ("a b", "printable ASCII")
    ),
    "id of a number": Wrong(sent(unique_id=5), MessageIllegalError, ("not a text", "5")),
    "property with a control character": Wrong(
        sent(properties={"a\x01b": "c"}), MessageIllegalError, ("a\\x01b",)
    ),
    "property of ours": Wrong(
        sent(properties={"KEYS": "c"}), MessageIllegalError, ("KEYS", "use='keys'")
    ),
    "property of a number": Wrong(sent(properties={"a": 5}), MessageIllegalError, ("'a'", "5")),
    "properties of a list": Wrong(sent(properties=[("a", "b")]), MessageIllegalError, ("by name",)),
    "properties too large": Wrong(
        sent(properties={"a": "v" * 40_000}), MessageIllegalError, ("limit=32767",)
    ),
    # Batches.
    "empty batch": Wrong(sent_all([]), MessageIllegalError, ("no message", "messages=0")),
    "batch without a size": Wrong(
        sent_all(body for body in (b"a", b"b")),
        MessageIllegalError,
        ("list of bodies", "list(", "generator"),
    ),
    "mixed batch": Wrong(
        sent_all([b"a", OutgoingMessage(b"b")]), MessageIllegalError, ("mixes", "OutgoingMessage")
    ),
    # Consumers.
    "consumer of an unknown topic": Wrong(read(topic="nothing"), TopicUnknownError, ("nothing",)),
    "consumer of a number": Wrong(read(topic=5), ConfigError, ("not a text", "5")),
    "consumer of queue 99": Wrong(read(queues=[99]), TopicUnknownError, ("99", "limit=3")),
    "consumer of no queues": Wrong(read(queues=[]), ConfigError, ("queues",)),
    "consumer of a queue of text": Wrong(read(queues="0"), ConfigError, ("queues", "'0'")),
    "consumer with a strange start": Wrong(
        read(start="beginning"), ConfigError, ("beginning", "first")
    ),
    "commit without a group": Wrong(
        lambda place: Consumer(place.address, topic=TOPIC).commit(), ConfigError, ("group",)
    ),
    "commit behind the end": Wrong(
        lambda place: Consumer(place.address, topic=TOPIC, group="g").commit({0: 10**9}),
        MessageIllegalError,
        ("1000000000",),
    ),
    "commit of queue 99": Wrong(
        lambda place: Consumer(place.address, topic=TOPIC, group="g").commit({99: 0}),
        TopicUnknownError,
        ("99",),
    ),
    "filter of Python": Wrong(read(tag="a && b"), FilterIllegalError, ("a && b", "||")),
    "tags of a list": Wrong(read(tag=["a"]), FilterIllegalError, ("['a']", "A || B")),
    "bad SQL": Wrong(
        read(filter=MessageFilter.by_sql("a >> 5")), FilterIllegalError, (">", "position")
    ),
    "tags and a filter": Wrong(
        read(tag="a", filter=MessageFilter.by_sql("a = 5")), ConfigError, ("tag", "filter")
    ),
    "options out of range": Wrong(
        lambda place: ConsumerOptions(messages_max=0),
        ConfigError,
        ("messages_max", "0", "minimum=1"),
    ),
    "options of a producer": Wrong(
        lambda place: ProducerOptions(timeout_s=0), ConfigError, ("timeout_s", "0", "minimum=")
    ),
    "options of a text": Wrong(
        lambda place: ProducerOptions(timeout_s="5"),  # type: ignore[arg-type]
        ConfigError,
        ("timeout_s", "'5'"),
    ),
    # Members of a group.
    "no subscription": Wrong(joined(lambda member: member.poll(1)), ConfigError, ("subscribe",)),
    "group with a space": Wrong(polled(TOPIC, group="a b"), ConfigError, ("'a b'",)),
    "group without letters": Wrong(polled(TOPIC, group=""), ConfigError, ("no group",)),
    "group too long": Wrong(polled(TOPIC, group="x" * 256), ConfigError, ("limit=255",)),
    "subscribe twice": Wrong(
        joined(lambda member: (member.subscribe(TOPIC), member.poll(1), member.subscribe("other"))),
        ConfigError,
        ("subscribe",),
    ),
    "seek of another's queue": Wrong(joined(_seek_early), TopicUnknownError, ("99", "assigned=")),
    # Closed clients.
    "closed producer": Wrong(
        closed(Producer, lambda c: c.send(TOPIC, b"x")), ClosedError, ("Producer",)
    ),
    "closed consumer": Wrong(
        closed(lambda at: Consumer(at, topic=TOPIC), lambda c: c.poll(1)),
        ClosedError,
        ("Consumer",),
    ),
    "closed member": Wrong(
        closed(lambda at: GroupConsumer(at, group="g"), lambda c: c.poll(1)),
        ClosedError,
        ("GroupConsumer",),
    ),
    "closed admin": Wrong(closed(Admin, lambda c: c.topics()), ClosedError, ("Admin",)),
    "closed requester": Wrong(
        closed(Requester, lambda c: c.request(TOPIC, b"x", timeout=1)), ClosedError, ("Requester",)
    ),
    "closed transactional producer": Wrong(
        closed(lambda at: TransactionalProducer(at, group="g"), lambda c: c.transaction()),
        ClosedError,
        ("TransactionalProducer",),
    ),
    "closed queries": Wrong(
        closed(Queries, lambda c: c.by_key(TOPIC, "k")), ClosedError, ("Queries",)
    ),
    "closed dead letters": Wrong(
        closed(lambda at: DeadLetters(at, group="g"), lambda c: c.queues()),
        ClosedError,
        ("DeadLetters",),
    ),
    # Administration.
    "topic without queues": Wrong(
        administered(lambda admin: admin.create_topic("new", queues=0)),
        LedgerError,
        ("queues", "minimum=1"),
    ),
    "queues of a text": Wrong(
        administered(lambda admin: admin.create_topic("new", queues="4")),  # type: ignore[arg-type]
        LedgerError,
        ("queues",),
    ),
    "topic deleted that is not there": Wrong(
        administered(lambda admin: admin.delete_topic("nothing")), TopicUnknownError, ("nothing",)
    ),
    "fewer queues": Wrong(
        administered(lambda admin: admin.alter_topic(TOPIC, queues=1)),
        MessageIllegalError,
        ("fewer write queues first",),
    ),
    "group that is not there": Wrong(
        administered(lambda admin: admin.group("biling")), GroupUnknownError, ("biling",)
    ),
    "reset of a group that is not there": Wrong(
        administered(lambda admin: admin.reset_offsets("biling", TOPIC, "first")),
        GroupUnknownError,
        ("biling", "create"),
    ),
    "reset to nowhere": Wrong(
        administered(lambda admin: admin.reset_offsets("g", TOPIC, "begin")),  # type: ignore[arg-type]
        LedgerError,
        ("begin", "first"),
    ),
    # Requests, transactions, timers.
    "request without time": Wrong(
        lambda place: Requester(place.address).request(TOPIC, b"x", timeout=0.05),
        TimedOutError,
        ("0.05", "topic='orders'"),
    ),
    "transaction of two groups": Wrong(
        transacted(lambda producer: producer.transaction(group="none").send(TOPIC, b"x")),
        ConfigError,
        ("none", "known="),
    ),
    "cancel of nothing": Wrong(
        lambda place: Producer(place.address).cancel("nonsense"), MessageIllegalError, ("nonsense",)
    ),
    "retry without a group": Wrong(_retry_without_group, ConfigError, ("group",)),
    "reply to no request": Wrong(_reply_to_no_request, MessageIllegalError, ("repl",)),
    "send in a transaction that has ended": Wrong(transacted(_ended), LedgerError, ("ended",)),
    "end of a transaction that has ended": Wrong(
        transacted(_commit_ended), LedgerError, ("ended",)
    ),
    "transactional producer without a group": Wrong(
        lambda place: TransactionalProducer(place.address, group=""), ConfigError, ("group",)
    ),
    "key of an unknown topic": Wrong(
        lambda place: Queries(place.address).by_key("nothing", "k"), TopicUnknownError, ("nothing",)
    ),
    "dead letters of an unknown group": Wrong(
        lambda place: DeadLetters(place.address, group="biling").queues(),
        GroupUnknownError,
        ("biling",),
    ),
    "lag of an unknown group": Wrong(
        administered(lambda admin: admin.lag("biling")), GroupUnknownError, ("biling",)
    ),
    "clone to a group that is not there": Wrong(
        administered(lambda admin: admin.clone_offsets("biling", "other")),
        GroupUnknownError,
        ("source is not there", "biling"),
    ),
    "another group of nodes": Wrong(sent(group="none"), ConfigError, ("none", "known=")),
    "body of text": Wrong(sent(body="text"), MessageIllegalError, ("encode", "'str'")),
    "one body for a batch": Wrong(sent_all(b"x"), MessageIllegalError, ("list of bodies", "send")),
    "timeout of text": Wrong(read(timeout="1"), ConfigError, ("timeout", "'1'")),
    "members' timeout of text": Wrong(
        joined(lambda member: (member.subscribe(TOPIC), member.poll("1"))),  # type: ignore[arg-type]
        ConfigError,
        ("timeout", "'1'"),
    ),
    "request's timeout of text": Wrong(
        lambda place: Requester(place.address).request(TOPIC, b"x", timeout="1"),  # type: ignore[arg-type]
        MessageIllegalError,
        ("timeout", "seconds"),
    ),
    "commit of a list": Wrong(
        lambda place: Consumer(place.address, topic=TOPIC, group="g").commit([0]),  # type: ignore[arg-type]
        ConfigError,
        ("[0]", "offsets by queue id"),
    ),
    "members' commit of a text": Wrong(
        joined(lambda member: (member.subscribe(TOPIC), member.poll(1), member.commit(TOPIC))),  # type: ignore[arg-type]
        ConfigError,
        ("'orders'", "a message, a batch", "TopicQueue"),
    ),
    "retry of a number": Wrong(
        lambda place: Consumer(place.address, topic=TOPIC, group="g").retry_later(5),  # type: ignore[arg-type]
        ConfigError,
        ("given=5", "message"),
    ),
    "member's retry of a number": Wrong(
        joined(lambda member: (member.subscribe(TOPIC), member.poll(1), member.retry_later(5))),  # type: ignore[arg-type]
        ConfigError,
        ("given=5", "message"),
    ),
    "subscription of a number": Wrong(
        joined(lambda member: member.subscribe(5)),  # type: ignore[arg-type]
        ConfigError,
        ("not a text", "5"),
    ),
    "listener of a number": Wrong(
        lambda place: GroupConsumer(place.address, group="g", listener=5),  # type: ignore[arg-type]
        ConfigError,
        ("RebalanceListener", "on_assigned"),
    ),
    "topic without its name": Wrong(
        lambda place: Consumer(place.address, TOPIC),  # type: ignore[call-arg]
        TypeError,
        ("Consumer() takes 1 without a name", "topic"),
    ),
    "queues without their name": Wrong(
        administered(lambda admin: admin.create_topic("new", 4)),  # type: ignore[call-arg]
        TypeError,
        ("create_topic() takes 1 without a name", "queues"),
    ),
    # Members of a share group.
    "share of an unknown topic": Wrong(
        shared(lambda member: member.poll(1), topic="nothing"), TopicUnknownError, ("nothing",)
    ),
    "share's timeout of text": Wrong(
        shared(lambda member: member.poll("1")),  # type: ignore[arg-type]
        ConfigError,
        ("timeout", "'1'"),
    ),
    "batch accepted as one": Wrong(
        shared(lambda member: member.accept(member.poll(PATIENCE_S))),  # type: ignore[arg-type]
        ConfigError,
        ("accept(*batch)", "'list'"),
    ),
    "accepted twice": Wrong(shared(_accept_twice), ConfigError, ("has and has not settled",)),
    "release of text": Wrong(
        shared(lambda member: member.release(delay_ms="5")),  # type: ignore[arg-type]
        ConfigError,
        ("delay_ms", "'5'", "limit="),
    ),
    "share while members consume": Wrong(_share_of_members, GroupActiveError, ("queue by queue",)),
    "closed share": Wrong(
        closed(lambda at: ShareConsumer(at, group="g", topic=TOPIC), lambda c: next(iter(c), None)),
        ClosedError,
        ("ShareConsumer",),
    ),
    "iteration of a closed consumer": Wrong(
        closed(lambda at: Consumer(at, topic=TOPIC), lambda c: next(iter(c), None)),
        ClosedError,
        ("Consumer",),
    ),
    "iteration of a closed member": Wrong(
        closed(lambda at: GroupConsumer(at, group="g"), lambda c: next(iter(c), None)),
        ClosedError,
        ("GroupConsumer",),
    ),
    # Words of other brokers, other processes, other threads.
    "a word near ours": Wrong(sent(tags="a"), TypeError, ("send()", "'tags'", "mean 'tag'")),
    "Kafka's word": Wrong(sent(headers={"a": "b"}), TypeError, ("'headers'", "mean 'properties'")),
    "Kafka's partitions": Wrong(
        administered(lambda admin: admin.create_topic("new", partitions=4)),  # type: ignore[call-arg]
        TypeError,
        ("create_topic()", "'partitions'", "mean 'queues'"),
    ),
    "client for another process": Wrong(
        lambda place: pickle.dumps(Producer(place.address)), TypeError, ("Producer", "of its own")
    ),
    "client of the parent": Wrong(_forked, ClosedError, ("Producer", "of its own", "process=")),
    "a second thread": Wrong(_of_two_threads, ConfigError, ("another thread", "of its own")),
    # Other units, other types.
    "time of delivery in seconds": Wrong(
        sent(deliver_at=1_796_088_000), MessageIllegalError, ("1796088000", "seconds")
    ),
    "start in seconds": Wrong(read(start=1_796_088_000), ConfigError, ("1796088000", "seconds")),
    "seek to text": Wrong(
        lambda place: _polled_consumer(place).seek(0, "5"),  # type: ignore[arg-type]
        ConfigError,
        ("offset", "'5'"),
    ),
    "pull of text": Wrong(
        lambda place: _polled_consumer(place).pull("0", 0),  # type: ignore[arg-type]
        ConfigError,
        ("queue_id", "'0'"),
    ),
    "commit by texts": Wrong(
        lambda place: Consumer(place.address, topic=TOPIC, group="g").commit({"0": 5}),  # type: ignore[dict-item]
        ConfigError,
        ("'0'", "offsets by queue id"),
    ),
    "seek of a number": Wrong(
        joined(lambda member: (member.subscribe(TOPIC), member.poll(1), member.seek(0, 5))),  # type: ignore[arg-type]
        ConfigError,
        ("TopicQueue(topic, queue_id)", "0"),
    ),
    "replay of a number": Wrong(
        lambda place: DeadLetters(place.address, group="g").replay("0"),  # type: ignore[arg-type]
        ConfigError,
        ("no offsets", "'0'"),
    ),
    "listener of transactions that is no function": Wrong(
        lambda place: TransactionalProducer(place.address, group="g", listener=5),  # type: ignore[arg-type]
        ConfigError,
        ("no function", "5"),
    ),
    "name of a number": Wrong(
        lambda place: Producer(place.address, name=5),  # type: ignore[arg-type]
        ConfigError,
        ("name", "5", "limit=255"),
    ),
    "reset to a time as it is": Wrong(
        administered(lambda admin: admin.reset_offsets("g", TOPIC, -5)),  # type: ignore[arg-type]
        ConfigError,
        ("-5", "with a value 'time'"),
    ),
    # Clients of a loop, before they are opened.
    "producer of another loop": Wrong(_in_two_loops, ConfigError, ("another loop", "asyncio.run")),
    "producer that is not open": Wrong(
        unopened(AsyncProducer, lambda c: c.send(TOPIC, b"x")), ConfigError, ("async with",)
    ),
    "consumer that is not open": Wrong(
        unopened(lambda at: AsyncConsumer(at, topic=TOPIC), lambda c: c.poll(1)),
        ConfigError,
        ("async with",),
    ),
    "member that is not open": Wrong(
        unopened(lambda at: AsyncGroupConsumer(at, group="g"), lambda c: c.poll(1)),
        ConfigError,
        ("async with",),
    ),
    "admin that is not open": Wrong(
        unopened(AsyncAdmin, lambda c: c.topics()), ConfigError, ("async with",)
    ),
    "requester that is not open": Wrong(
        unopened(AsyncRequester, lambda c: c.request(TOPIC, b"x", timeout=1)),
        ConfigError,
        ("async with",),
    ),
}


@contextmanager
def place_made() -> Iterator[Place]:
    """A node for all calls: none of them changes more than that a message is there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    with nodes_made() as make:
        made = make()
        start_client_node(made, topics={"auto_create_topic_enable": False})
        yield Place(made.address, nobody, str(made.folder / "nothing"))


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with place_made() as made:
        yield made


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_told_what_was_wrong(place: Place, name: str) -> None:
    call, kind, says = WRONG[name]
    with pytest.raises(kind) as told:
        call(place)

    text = str(told.value)
    assert [part for part in says if part.format(**vars(place)) not in text] == [], text
