"""Arguments of another type than the one that is meant: a typed error names them at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client import (
    Admin,
    ConfigError,
    Consumer,
    ConsumerOptions,
    DeadLetters,
    FilterIllegalError,
    GroupConsumer,
    GroupOptions,
    MessageFilter,
    MessageIllegalError,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    Queries,
    Requester,
    ShareConsumer,
    ShareOptions,
    Tracing,
    TransactionalProducer,
    aio,
)
from tests.unit.client.known_cluster import MakeCluster
from tests.unit.client.peer import Peer

SENDS: list[tuple[dict[str, Any], str]] = [
    ({"topic": b"T"}, "topic is not a text"),
    ({"topic": None}, "topic is not a text"),
    ({"queue_key": 5}, "queue_key is not a text"),
    ({"message_group": 5}, "message_group is no text"),
    ({"message_group": ""}, "message_group is no text"),
    ({"message_group": "g", "properties": "a"}, "properties are not texts by name"),
    ({"properties": [("a", "b")]}, "properties are not texts by name"),
    ({"properties": "a"}, "properties are not texts by name"),
    ({"properties": {"n": 5}}, "property value is not a text"),
    ({"properties": {5: "n"}}, "property name is not a text"),
    ({"tag": " a"}, "tag has blanks around it"),
    ({"tag": "a\t"}, "tag has blanks around it"),
    ({"keys": 5}, "keys are not texts"),
    ({"keys": [5]}, "key is not a text"),
    ({"queue_id": "1"}, "queue_id is no whole number"),
    ({"flag": 1.5}, "flag is not a signed 32-bit number"),
    ({"delay": 1.5}, "delay is no whole number of milliseconds, nor a timedelta"),
    ({"delay": True}, "delay is no whole number"),
    ({"deliver_at": 1.5}, "deliver_at is no whole number of epoch milliseconds, nor a datetime"),
    ({"delay_level": 1.5}, "delay_level is no whole number"),
]


@pytest.mark.parametrize(("arguments", "text"), SENDS)
def test_a_message_is_refused(peer: Peer, arguments: dict[str, Any], text: str) -> None:
    given = {"topic": "T", **arguments}
    with Producer(peer.address) as producer:
        topic = given.pop("topic")
        with pytest.raises(MessageIllegalError, match=text):
            producer.send(topic, b"x", **given)
        with pytest.raises(MessageIllegalError, match=text):
            producer.send_batch(topic, [b"x"], **given)


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("is_cluster", [False, True])
@pytest.mark.parametrize("body", ["x", None, 5, ["x"]])
def test_a_body_is_bytes(
    peer: Peer, make_cluster: MakeCluster, body: Any, is_cluster: bool, is_traced: bool
) -> None:
    address = make_cluster("ab")["a"].address if is_cluster else peer.address
    with Producer(address, tracing=Tracing() if is_traced else None) as producer:
        for send in (
            lambda: producer.send("T", body),
            lambda: producer.send_batch("T", [body]),
            lambda: producer.send_batch("T", [OutgoingMessage(body)]),
        ):
            with pytest.raises(MessageIllegalError, match="body is no bytes: encode it"):
                send()


MISSING = (
    "missing a required argument"
    if sys.version_info < (3, 14)
    else "missing a required keyword-only argument"
)
"""As Python's own ``inspect`` says it."""

CALLS: list[tuple[Callable[[Any, str], object], str]] = [
    (
        lambda _, at: Producer(at, adress=1),  # type: ignore[call-arg]
        "Producer() got an unexpected keyword argument 'adress'; did you mean 'address'?",
    ),
    (
        lambda _, at: Consumer(at, topic="T", tagz="a"),  # type: ignore[call-arg]
        "Consumer() got an unexpected keyword argument 'tagz'; did you mean 'tag",
    ),
    (lambda _, at: Consumer(at), f"Consumer(): {MISSING}: 'topic'"),  # type: ignore[call-arg]
    (
        lambda _, at: aio.AsyncConsumer(at),  # type: ignore[call-arg]
        f"AsyncConsumer(): {MISSING}: 'topic'",
    ),
    (
        lambda _, at: Producer(at, linger_ms=5),  # type: ignore[call-arg]
        "Producer() got an unexpected keyword argument 'linger_ms';"
        " did you mean options=ProducerOptions(linger_ms=…)?",
    ),
    (
        lambda _, at: aio.AsyncGroupConsumer(at, group="g", ordered=True),  # type: ignore[call-arg]
        "AsyncGroupConsumer() got an unexpected keyword argument 'ordered';"
        " did you mean group_options=GroupOptions(ordered=…)?",
    ),
    (
        lambda _, at: ShareConsumer(at, group="g", topic="T", max_in_flight=3),  # type: ignore[call-arg]
        "ShareConsumer() got an unexpected keyword argument 'max_in_flight';"
        " did you mean options=ShareOptions(max_in_flight=…)?",
    ),
    (
        lambda _, __: ShareOptions(max_inflight=3),  # type: ignore[call-arg]
        "ShareOptions() got an unexpected keyword argument 'max_inflight';"
        " did you mean 'max_in_flight'?",
    ),
    (
        lambda _, __: ConsumerOptions(5),  # type: ignore[call-arg]
        "ConsumerOptions() takes 0 without a name; the others have one: messages_max",
    ),
    (lambda member, _: member.seek(), "seek() missing 2 required positional arguments"),
    (lambda member, _: member.commit(ofsets={}), "commit() got an unexpected keyword argument"),
]


@pytest.mark.parametrize(("call", "text"), CALLS)
def test_a_wrong_call_is_told_by_the_name_that_was_called(
    peer: Peer, call: Callable[[Any, str], object], text: str
) -> None:
    with (
        GroupConsumer(peer.address, group="g", one_group=True) as member,
        pytest.raises(TypeError, match=f"^{re.escape(text)}"),
    ):
        call(member, peer.address)


def test_a_wrong_keyword_of_a_message_is_told_by_the_verb(peer: Peer) -> None:
    def listener(_: object) -> None: ...

    meant = re.escape("() got an unexpected keyword argument 'tags'; did you mean 'tag'?")
    given: Any = {"tags": "a"}
    with (
        Producer(peer.address) as producer,
        TransactionalProducer(peer.address, group="g", listener=listener) as till,
        Requester(peer.address) as requester,
    ):
        for verb, call in (
            ("send", lambda: producer.send("T", b"x", **given)),
            ("send_batch", lambda: producer.send_batch("T", [b"x"], **given)),
            ("request", lambda: requester.request("T", b"x", timeout=1.0, **given)),
            ("send", lambda: till.transaction("T").send("T", b"x", **given)),
        ):
            with pytest.raises(TypeError, match=f"^{verb}{meant}$"):
                call()


@pytest.mark.parametrize("make", [ConsumerOptions, ProducerOptions])
def test_an_option_that_is_no_number_is_refused(make: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match=r"timeout_s is no number \(value='5', minimum="):
        make(timeout_s="5")


OPTIONS: list[tuple[Callable[[str], object], str]] = [
    (
        lambda at: Producer(at, options={"linger_ms": 5}),  # type: ignore[arg-type]
        r"options are of another class: options=ProducerOptions\(…\)",
    ),
    (
        lambda at: GroupConsumer(at, group="g", options=GroupOptions()),  # type: ignore[arg-type]
        "options are of another class: give them as group_options=",
    ),
    (
        lambda at: aio.AsyncShareConsumer(at, group="g", topic="T", options=ConsumerOptions()),  # type: ignore[arg-type]
        r"options are of another class: options=ShareOptions\(…\)",
    ),
    (
        lambda _: ShareOptions(invisible_ms="30"),  # type: ignore[arg-type]
        r"invisible_ms is no whole number \(value='30', minimum=100",
    ),
    (lambda _: ShareOptions(invisible_ms=30), r"invisible_ms out of range \(value=30, minimum=100"),
    (lambda at: Admin(at, timeout_s="5"), r"timeout_s is no number \(value='5', minimum="),  # type: ignore[arg-type]
    (lambda at: aio.AsyncAdmin(at, timeout_s=0), r"timeout_s out of range \(value=0, minimum="),
    (lambda at: ShareConsumer(at, group="", topic="T"), "consumer has no group"),
    (lambda at: ShareConsumer(at, group="g", topic=b"T"), "topic is not a text"),  # type: ignore[arg-type]
    (lambda at: DeadLetters(at, group="a b"), "group has a character that is not allowed"),
]


@pytest.mark.parametrize(("make", "text"), OPTIONS)
def test_options_and_names_are_refused_when_they_are_given(
    peer: Peer, make: Callable[[str], object], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        make(peer.address)


ASKED: list[tuple[Callable[[Queries], object], str]] = [
    (lambda asked: asked.by_key("T", 5), r"argument='key', value=5, expected='str'"),  # type: ignore[arg-type]
    (lambda asked: asked.by_key("T", "k", messages_max="5"), "argument='messages_max', value='5'"),  # type: ignore[arg-type]
    (lambda asked: asked.message_at("5"), "argument='position', value='5', expected='int'"),  # type: ignore[arg-type]
    (lambda asked: asked.browse("T", True, 0), "argument='queue_id', value=True, expected='int'"),
    (lambda asked: asked.message_by_id("x", topic=5), "argument='topic', value=5"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "text"), ASKED)
def test_what_is_asked_with_another_type_is_told_by_the_argument(
    peer: Peer, call: Callable[[Queries], object], text: str
) -> None:
    with (
        Queries(peer.address) as queries,
        pytest.raises(MessageIllegalError, match=f"another type.*{text}"),
    ):
        call(queries)


def test_what_no_broker_takes_is_refused_before_one_is_asked() -> None:
    with Admin("tcp://127.0.0.1:1") as admin:
        with pytest.raises(MessageIllegalError, match=r"queues out of range \(value=0, minimum=1"):
            admin.create_topic("T", queues=0)
        with pytest.raises(MessageIllegalError, match=r"another type \(argument='queues'"):
            admin.create_topic("T", queues="4")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^create_topic\(\) got .* did you mean 'queues'"):
            admin.create_topic("T", queue=4)  # type: ignore[call-arg]


def test_old_names_of_tags_are_taken_with_a_warning(peer: Peer) -> None:
    with pytest.warns(DeprecationWarning, match="tags is tag now") as told:
        Consumer(peer.address, topic="T", tags="a || b").close()
    with GroupConsumer(peer.address, group="g") as member:
        with pytest.warns(DeprecationWarning, match="expression is tag, or filter now"):
            member.subscribe("T", expression="a")
        member.subscribe("U", filter=MessageFilter.by_sql("a = 1"))

    assert told[0].filename == __file__


READS: list[tuple[Callable[[Any, str], object], type[Exception]]] = [
    (lambda _, at: Consumer(at, topic="T", tag=["a"]), FilterIllegalError),  # type: ignore[arg-type]
    (lambda _, at: Consumer(at, topic="T", tag=None), FilterIllegalError),  # type: ignore[arg-type]
    (lambda _, at: Consumer(at, topic="T", filter="a"), ConfigError),  # type: ignore[arg-type]
    (lambda _, at: Consumer(at, topic=b"T"), ConfigError),  # type: ignore[arg-type]
    (lambda _, at: Consumer(at, topic="T", group=b"g"), ConfigError),  # type: ignore[arg-type]
    (lambda _, at: GroupConsumer(at, group=5), ConfigError),  # type: ignore[arg-type]
    (lambda _, at: TransactionalProducer(at, group=b"g"), ConfigError),  # type: ignore[arg-type]
    (lambda _, at: Producer(at.encode()), ConfigError),  # type: ignore[arg-type]
    (lambda _, at: MessageFilter.by_sql(b"a = 1"), FilterIllegalError),  # type: ignore[arg-type]
    (lambda member, _: member.subscribe(b"T"), ConfigError),
    (lambda member, _: member.subscribe([b"T"]), ConfigError),
    (lambda member, _: member.subscribe("T", ["a"]), FilterIllegalError),
    (lambda member, _: member.subscribe("T", filter="a"), ConfigError),
]


@pytest.mark.parametrize(("make", "kind"), READS)
def test_a_client_or_a_filter_is_refused(
    peer: Peer, make: Callable[[Any, str], object], kind: type[Exception]
) -> None:
    with (
        GroupConsumer(peer.address, group="g") as member,
        pytest.raises(kind, match=r"not a text|not a|no MessageFilter"),
    ):
        make(member, peer.address)
