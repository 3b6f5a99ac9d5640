"""Arguments of another type than the one that is meant: a typed error names them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledgermq.client import Consumer, GroupConsumer, MessageFilter, Producer
from ledgermq.client.blocking.transactions import TransactionalProducer
from ledgermq.model.errors import ConfigError, FilterIllegalError, MessageIllegalError
from tests.unit.client.peer import Peer

SENDS: list[tuple[dict[str, Any], str]] = [
    ({"topic": b"T"}, "topic is not a text"),
    ({"topic": None}, "topic is not a text"),
    ({"queue_key": 5}, "queue_key is not a text"),
    ({"properties": [("a", "b")]}, "properties are not texts by name"),
    ({"properties": "a"}, "properties are not texts by name"),
    ({"properties": {"n": 5}}, "property value is not a text"),
]


@pytest.mark.parametrize(("arguments", "text"), SENDS)
def test_a_message_is_refused(peer: Peer, arguments: dict[str, Any], text: str) -> None:
    given = {"topic": "T", **arguments}
    with Producer(peer.address) as producer:
        with pytest.raises(MessageIllegalError, match=text):
            producer.send(given.pop("topic"), b"x", **given)
        if arguments.keys() == {"topic"}:
            with pytest.raises(MessageIllegalError, match=text):
                producer.send_batch(arguments["topic"], [b"x"])


READS: list[tuple[Callable[[Any, str], object], type[Exception]]] = [
    (lambda _, at: Consumer(at, topic="T", tags=["a"]), FilterIllegalError),  # type: ignore[arg-type]
    (lambda _, at: Consumer(at, topic="T", tags=None), FilterIllegalError),  # type: ignore[arg-type]
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
