"""Clients of all groups of a cluster, by their names: imported when a client has learned of one.

They are made of the ordinary clients, each of which becomes one of them in a cluster; a client of
one group never imports them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

MODULES: Mapping[str, str] = {
    "AsyncConsumerOfGroups": "ledgermq.client.aio.cluster_consumer",
    "AsyncGroupAdmins": "ledgermq.client.aio.group_admins",
    "AsyncGroupConsumerOfGroups": "ledgermq.client.aio.cluster_group_consumer",
    "AsyncProducerOfGroups": "ledgermq.client.aio.cluster_producer",
    "AsyncRequesterOfGroups": "ledgermq.client.aio.cluster_requester",
    "AsyncTransactionalProducerOfGroups": "ledgermq.client.aio.cluster_transactions",
    "ConsumerOfGroups": "ledgermq.client.clusters.cluster_consumer",
    "GroupAdmins": "ledgermq.client.clusters.group_admins",
    "GroupConsumerOfGroups": "ledgermq.client.clusters.cluster_group_consumer",
    "ProducerOfGroups": "ledgermq.client.clusters.cluster_producer",
    "RequesterOfGroups": "ledgermq.client.clusters.cluster_requester",
    "TransactionalProducerOfGroups": "ledgermq.client.clusters.cluster_transactions",
}


def client_of_groups(name: str) -> Any:
    """The class of that name."""
    return getattr(import_module(MODULES[name]), name)
