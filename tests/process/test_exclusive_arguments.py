"""Arguments of which one at most may be given: two are refused by their names, in both forms.

Neither is taken for the other silently, and no node is asked before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from inspect import isawaitable
from typing import Any, NamedTuple

import pytest

from ledgermq.client import (
    Admin,
    Consumer,
    Decision,
    GroupConsumer,
    GroupOptions,
    LedgerError,
    MessageFilter,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    Queries,
    Requester,
    TransactionalProducer,
)
from ledgermq.client.aio import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncGroupConsumer,
    AsyncProducer,
    AsyncQueries,
    AsyncRequester,
    AsyncTransactionalProducer,
)
from tests.process.test_wrong_calls import TOPIC, Place, place_made

pytestmark = pytest.mark.slow

FORMS: dict[str, tuple[Any, Any]] = {
    "admin": (Admin, AsyncAdmin),
    "consumer": (Consumer, AsyncConsumer),
    "member": (GroupConsumer, AsyncGroupConsumer),
    "producer": (Producer, AsyncProducer),
    "queries": (Queries, AsyncQueries),
    "requester": (Requester, AsyncRequester),
    "transactional": (TransactionalProducer, AsyncTransactionalProducer),
}
MADE_WITH: dict[str, dict[str, object]] = {
    "consumer": {"topic": TOPIC},
    "member": {"group": "members"},
    "transactional": {"group": "payers"},
}
OWN = [OutgoingMessage(b"a"), OutgoingMessage(b"b", tag="z")]
TAG = MessageFilter.by_tags("b")


class Call(NamedTuple):
    """A verb of a kind of client, and its arguments; no verb: the client's own."""

    client: str
    verb: str
    args: tuple[Any, ...]
    options: dict[str, Any]


def made(client: str, **options: Any) -> Call:
    """A client that is made."""
    return Call(client, "", (), options)


def sent(**options: Any) -> Call:
    """A message that is sent."""
    return Call("producer", "send", (TOPIC, b"x"), options)


def sent_all(**options: Any) -> Call:
    """A batch of messages that have options of their own."""
    return Call("producer", "send_batch", (TOPIC, OWN), options)


TWO: dict[str, tuple[Call, tuple[str, ...]]] = {
    "queue": (sent(queue_id=1, queue_key="a"), ("queue_id", "queue_key")),
    "queue of a batch": (
        Call("producer", "send_batch", (TOPIC, [b"x"]), {"queue_id": 1, "queue_key": "a"}),
        ("queue_id", "queue_key"),
    ),
    "queue of a request": (
        Call("requester", "request", (TOPIC, b"x"), {"queue_id": 1, "queue_key": "a"}),
        ("queue_id", "queue_key"),
    ),
    "queue in a transaction": (
        Call(
            "transactional",
            "send",
            (TOPIC, b"x", lambda _: Decision.COMMIT),
            {"queue_id": 1, "queue_key": "a"},
        ),
        ("queue_id", "queue_key"),
    ),
    "queue of a priority": (sent(priority=1, queue_id=0), ("priority", "queue_id")),
    "key and priority": (sent(priority=1, queue_key="a"), ("priority", "queue_key")),
    "ordered priority": (sent(priority=1, message_group="a"), ("priority", "message_group")),
    "delayed priority": (sent(priority=1, delay=5), ("priority", "delay")),
    "priority twice": (
        sent(priority=1, properties={"_SYS_MSG_PRIORITY_": "3"}),
        ("priority", "_SYS_MSG_PRIORITY_"),
    ),
    "priority and a level": (sent(priority=1, properties={"DELAY": "3"}), ("priority", "DELAY")),
    "two delays": (sent(delay=5, delay_level=2), ("delay", "delay_level")),
    "two times": (sent(delay=5, deliver_at=4 * 10**12), ("delay", "deliver_at")),
    "delay and its property": (sent(delay=5, properties={"DELAY": "3"}), ("delay", "DELAY")),
    "level and its property": (
        sent(delay_level=5, properties={"DELAY": "3"}),
        ("delay_level", "DELAY"),
    ),
    "group of messages twice": (
        sent(message_group="a", properties={"__SHARDINGKEY": "b"}),
        ("message_group", "__SHARDINGKEY"),
    ),
    "tag of a batch": (sent_all(tag="a"), ("tag", "OutgoingMessage")),
    "keys of a batch": (sent_all(keys=["a"]), ("keys", "OutgoingMessage")),
    "properties of a batch": (sent_all(properties={"a": "b"}), ("properties", "OutgoingMessage")),
    "flag of a batch": (sent_all(flag=3), ("flag", "OutgoingMessage")),
    "message group of a batch": (sent_all(message_group="a"), ("message_group", "OutgoingMessage")),
    "priority of a batch": (sent_all(priority=3), ("priority", "OutgoingMessage")),
    "keys of one group": (
        made("producer", one_group=True, keys={"g": "/k"}),
        ("keys", "one_group"),
    ),
    "fail-over in one group": (
        made("producer", one_group=True, fail_over_s=1.0),
        ("fail_over_s", "one_group"),
    ),
    "requester's keys": (
        made("requester", one_group=True, keys={"g": "/k"}),
        ("keys", "one_group"),
    ),
    "transactional keys": (
        made("transactional", one_group=True, keys={"g": "/k"}),
        ("keys", "one_group"),
    ),
    "consumer's keys": (made("consumer", one_group=True, keys={"g": "/k"}), ("keys", "one_group")),
    "member's keys": (made("member", one_group=True, keys={"g": "/k"}), ("keys", "one_group")),
    "tag and filter": (made("consumer", tag="a", filter=TAG), ("tag", "filter")),
    "member's tag and filter": (
        Call("member", "subscribe", (TOPIC, "a"), {"filter": TAG}),
        ("tag", "filter"),
    ),
    "two filters": (Call("member", "subscribe", (TOPIC, TAG), {"filter": TAG}), ("tag", "filter")),
    "queues twice": (
        Call("admin", "create_topic", ("new",), {"queues": 4, "write_queues": 2}),
        ("queues", "write_queues"),
    ),
    "queues altered twice": (
        Call("admin", "alter_topic", (TOPIC,), {"queues": 8, "read_queues": 9}),
        ("queues", "read_queues"),
    ),
    "number that nothing asks for": (
        Call("admin", "reset_offsets", ("g", TOPIC, "first", 5), {}),
        ("value", "to="),
    ),
    "delay of what is done": (
        Call("admin", "settle_shared", ("g", "accept", ["h"]), {"delay_ms": 5}),
        ("action", "delay_ms"),
    ),
    "times in reverse": (
        Call("queries", "by_key", (TOPIC, "k"), {"begin": 5, "end": 3}),
        ("begin", "end"),
    ),
    "queue of no topic": (
        Call("queries", "earliest_time", (), {"queue_id": 3}),
        ("queue_id", "topic"),
    ),
}


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with place_made() as made:
        yield made


def blocking(place: Place, call: Call, options: dict[str, Any]) -> object:
    kind = FORMS[call.client][0]
    with kind(place.address, **options) as client:
        return getattr(client, call.verb)(*call.args, **call.options)


async def awaited(place: Place, call: Call, options: dict[str, Any]) -> object:
    kind = FORMS[call.client][1]
    async with kind(place.address, **options) as client:
        given = getattr(client, call.verb)(*call.args, **call.options)
        return await given if isawaitable(given) else given


@pytest.mark.parametrize("form", ["blocking", "asyncio"])
@pytest.mark.parametrize("name", TWO)
def test_two_that_exclude_each_other_are_refused_by_their_names(
    place: Place, name: str, form: str
) -> None:
    call, named = TWO[name]
    options = {**MADE_WITH.get(call.client, {}), **({} if call.verb else call.options)}
    with pytest.raises(LedgerError) as told:
        if form == "blocking":
            blocking(place, call, options)
        else:
            asyncio.run(awaited(place, call, options))

    text = str(told.value)
    assert [one for one in named if one not in text] == [], text


OLD: dict[str, tuple[Call, tuple[str, ...]]] = {
    "tag": (made("consumer", tag="a", tags="b"), ("tag", "tags")),
    "tag, or filter": (
        Call("member", "subscribe", (TOPIC, "a"), {"expression": "b"}),
        ("tag", "expression"),
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_an_old_name_is_not_taken_beside_its_new_one(place: Place, name: str) -> None:
    call, named = OLD[name]
    options = {**MADE_WITH[call.client], **({} if call.verb else call.options)}
    with pytest.warns(DeprecationWarning, match=name), pytest.raises(LedgerError) as told:
        blocking(place, call, options)

    assert all(f"{one}=" in str(told.value) for one in named), told.value


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: GroupOptions(model="broadcasting", ordered=True), ("broadcasting", "ordered")),
        (lambda: GroupOptions(model="broadcasting", strategy="sticky"), ("strategy", "model")),
        (lambda: GroupOptions(model="broadcasting", commit_on_revoke=False), ("commit_on_revoke",)),
        (lambda: GroupOptions(offsets_directory="/tmp/x"), ("offsets_directory", "clustering")),
        (
            lambda: ProducerOptions(compress_above=None, compression_level=5),
            ("compress_above", "compression_level"),
        ),
        (
            lambda: ProducerOptions(compress_above=None, compression="lz4"),
            ("compress_above", "compression="),
        ),
    ],
)
def test_options_of_which_one_says_nothing_are_refused(make: Any, named: tuple[str, ...]) -> None:
    with pytest.raises(LedgerError) as told:
        make()

    assert [one for one in named if one not in str(told.value)] == [], told.value
