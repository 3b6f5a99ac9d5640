"""Heartbeats of the clients that there are: Java's names, and C++'s numbers."""

from __future__ import annotations

import json

import pytest

from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.heartbeat import (
    ConsumeFrom,
    ConsumerGroup,
    ConsumeType,
    MessageModel,
    Subscription,
    decode_heartbeat,
)

JAVA = b"""{"clientID":"10.0.0.1@7#1","consumerDataSet":[{"consumeFromWhere":
"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"workers",
"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919],
"expressionType":"TAG","subString":"TagA","subVersion":1700000000000,"tagsSet":["TagA"],
"topic":"orders"}],"unitMode":false}],"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}]}"""
CPP = b"""{"clientID":"10.0.0.1@7#1","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,
"groupName":"workers","messageModel":1,"subscriptionDataSet":[{"subString":"TagA",
"codeSet":[2598919],"tagsSet":["TagA"],"subVersion":"1700000000000","topic":"orders"}]}]}"""

WORKERS = ConsumerGroup(
    "workers",
    ConsumeType.CONSUME_PASSIVELY,
    MessageModel.CLUSTERING,
    ConsumeFrom.CONSUME_FROM_FIRST_OFFSET,
    (
        Subscription(
            "orders", "TagA", "TAG", 1_700_000_000_000, frozenset({"TagA"}), frozenset({2598919})
        ),
    ),
)


@pytest.mark.parametrize(
    ("body", "producers"), [(JAVA, ("CLIENT_INNER_PRODUCER",)), (CPP, ())], ids=["java", "cpp"]
)
def test_both_ways_of_saying_it_mean_the_same(body: bytes, producers: tuple[str, ...]) -> None:
    heartbeat = decode_heartbeat(body)

    assert heartbeat.client_id == "10.0.0.1@7#1"
    assert heartbeat.consumers == (WORKERS,)
    assert heartbeat.producers == producers


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{}", "clientID"),
        (b'{"clientID":"c","producerDataSet":[{}]}', "groupName"),
        (b'{"clientID":"c","producerDataSet":{}}', "producerDataSet"),
        (b'{"clientID":"c","consumerDataSet":[1]}', "consumerDataSet"),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":7}]}',
            "messageModel",
        ),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"X"}]}',
            "consumeType",
        ),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":'
            b'"t","codeSet":[2147483648]}]}]}',
            "codeSet",
        ),
        (
            b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":'
            b'"t","subVersion":"-9223372036854775809"}]}]}',
            "subVersion",
        ),
    ],
)
def test_what_cannot_be_meant_is_named(body: bytes, field: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        decode_heartbeat(body)

    assert refused.value.details["field"] == field


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"producerDataSet": [{"groupName": f"p{one}"} for one in range(4_097)]}, "groups"),
        ({"consumerDataSet": [{"groupName": f"c{one}"} for one in range(4_097)]}, "groups"),
        (
            {
                "consumerDataSet": [
                    {"groupName": "c", "subscriptionDataSet": [{"topic": "t"}] * 4_097}
                ]
            },
            "subscriptions",
        ),
        (
            {
                "consumerDataSet": [
                    {
                        "groupName": "c",
                        "subscriptionDataSet": [{"topic": "t", "tagsSet": ["a"] * 8_192}] * 2
                        + [{"topic": "t", "codeSet": [1]}],
                    }
                ]
            },
            "tags",
        ),
        # What is refused for its number is not looked at.
        ({"producerDataSet": [1] * 4_097}, "groups"),
        ({"clientID": "x" * 1_025}, "client id"),
    ],
)
def test_a_heartbeat_of_more_than_any_client_has_is_refused(
    body: dict[str, object], named: str
) -> None:
    with pytest.raises(ProtocolError, match=rf"{named}.*limit="):
        decode_heartbeat(json.dumps({"clientID": "c", **body}).encode())
