"""Topic routes and cluster tables, as name servers tell them (``TopicRouteData``).

Compact JSON: one client cuts it at commas and colons itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ledgermq.remoting.fastjson import encode_body

LEADER_ID = 0
"""Clients produce at the broker of this id alone."""


class BrokerAddresses(NamedTuple):
    """The nodes of one broker name; ``addresses`` are ``host:port`` by broker id."""

    cluster: str
    name: str
    addresses: Mapping[int, str]


class QueueCounts(NamedTuple):
    """Queues of a topic at a broker name; ``perm`` has 4 for reading and 2 for writing."""

    broker: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0


def encode_route(
    brokers: Iterable[BrokerAddresses], queues: Iterable[QueueCounts], *, order: str = ""
) -> bytes:
    """The body of the reply to ``GET_ROUTEINFO_BY_TOPIC``.

    Args:
        order: ``broker:queues`` with semicolons between them, for topics whose queues are fixed.
    """
    body: dict[str, object] = {
        "brokerDatas": [_broker(one) for one in brokers],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": one.broker,
                "perm": one.perm,
                "readQueueNums": one.read_queues,
                "topicSysFlag": one.sys_flag,
                "writeQueueNums": one.write_queues,
            }
            for one in queues
        ],
    }
    if order:
        body["orderTopicConf"] = order
    return encode_body(body)


def encode_cluster(
    brokers: Iterable[BrokerAddresses], also: Iterable[tuple[str, str]] = ()
) -> bytes:
    """The body of the reply to ``GET_BROKER_CLUSTER_INFO``.

    Args:
        also: clusters besides their own, each with a broker name that is in it.
    """
    found = list(brokers)
    clusters: dict[str, dict[str, None]] = {}
    for cluster, name in (*((one.cluster, one.name) for one in found), *also):
        clusters.setdefault(cluster, {})[name] = None
    return encode_body(
        {
            "brokerAddrTable": {one.name: _broker(one) for one in found},
            "clusterAddrTable": {cluster: list(names) for cluster, names in clusters.items()},
        }
    )


def encode_topic_list(topics: Iterable[str], *, broker: str = "") -> bytes:
    """The body of the replies that list topics.

    Args:
        broker: address of a broker to ask for more.
    """
    body: dict[str, object] = {"topicList": sorted(topics)}
    if broker:
        body["brokerAddr"] = broker
    return encode_body(body)


def _broker(one: BrokerAddresses) -> dict[str, object]:
    addresses = {str(number): address for number, address in sorted(one.addresses.items())}
    return {
        "brokerAddrs": addresses,
        "brokerName": one.name,
        "cluster": one.cluster,
        # Of RocketMQ 5: some of its clients refuse a route without it.
        "enableActingMaster": False,
    }
