"""Routes are the JSON that RocketMQ 4.9.4's name server sends, with quotes around its numbers."""

from __future__ import annotations

from ledgermq.remoting.routes import (
    BrokerAddresses,
    QueueCounts,
    encode_cluster,
    encode_route,
    encode_topic_list,
)

BROKER = BrokerAddresses("C", "b", {1: "10.0.0.2:10911", 0: "10.0.0.1:10911"})
BROKER_JSON = (
    b'{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"b","cluster":"C",'
    b'"enableActingMaster":false}'
)


def test_a_route_has_brokers_and_queues() -> None:
    route = encode_route([BROKER], [QueueCounts("b", 4, 4, 6)])

    assert route == (
        b'{"brokerDatas":[' + BROKER_JSON + b'],"filterServerTable":{},"queueDatas":['
        b'{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_an_order_is_told_where_there_is_one() -> None:
    assert b'"orderTopicConf":"b:4"' in encode_route([BROKER], [], order="b:4")


def test_a_cluster_names_its_brokers() -> None:
    assert encode_cluster([BROKER]) == (
        b'{"brokerAddrTable":{"b":' + BROKER_JSON + b'},"clusterAddrTable":{"C":["b"]}}'
    )


def test_topics_are_listed_in_order() -> None:
    assert encode_topic_list(["b", "a"]) == b'{"topicList":["a","b"]}'
    assert encode_topic_list([], broker="h:1") == b'{"topicList":[],"brokerAddr":"h:1"}'
