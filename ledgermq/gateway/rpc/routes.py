"""Routes for gRPC clients: the queues of a topic, at the addresses that the client itself uses.

Any member answers all calls: one that follows hands them on. So clients stay at the addresses that
they were given, also behind ports that are mapped; where the leader is among them it comes first.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from ledgermq.client.core.questions import PERMIT_READ, PERMIT_WRITE, Route
from ledgermq.gateway.rpc.definition import AddressScheme, QueuePermission, RpcCode, make
from ledgermq.gateway.rpc.sent_messages import types_of
from ledgermq.gateway.rpc.statuses import RpcRefusedError
from ledgermq.hosts.host_name import host_and_port
from ledgermq.remoting.pop_messages import ANY_QUEUE

GIVEN_ADDRESSES_MAX = 64
HOST_SIZE_MAX = 255
"""Addresses that a client was given, of which a route tells, and characters of one."""

_PERMISSIONS = {
    PERMIT_READ | PERMIT_WRITE: QueuePermission.READ_WRITE,
    PERMIT_READ: QueuePermission.READ,
    PERMIT_WRITE: QueuePermission.WRITE,
}


def endpoints_for(told: Any, *, own: str, leader: str) -> Any:
    """Where a client finds the queues.

    Args:
        told: the addresses that it was given.
        own: this node's address, for a client that names none.
        leader: the leader's as ``grpc.members`` has it; empty while it is not known.

    Raises:
        RpcRefusedError: they are none. They are told back once for each queue.
    """
    if len(told.addresses) > GIVEN_ADDRESSES_MAX or any(
        len(one.host) > HOST_SIZE_MAX for one in told.addresses
    ):
        raise RpcRefusedError(
            RpcCode.ILLEGAL_ACCESS_POINT,
            "client was given too many addresses, or one that is too long",
            addresses=len(told.addresses),
            limit=GIVEN_ADDRESSES_MAX,
            size_limit=HOST_SIZE_MAX,
        )
    endpoints = make("Endpoints")
    endpoints.CopyFrom(told)
    if not endpoints.addresses:
        host, _, port = own.rpartition(":")
        host = host.strip("[]")
        endpoints.scheme = _scheme(host)
        endpoints.addresses.add(host=host, port=int(port))
    # A stable order: who gets the same addresses keeps its connections.
    endpoints.addresses.sort(key=lambda one: host_and_port(one.host, one.port) != leader)
    return endpoints


def queues_of(route: Route, *, broker: str, endpoints: Any) -> list[Any]:
    """A ``MessageQueue`` for each queue of a topic."""
    count = max(route.read_queues, route.write_queues)
    return [_queue(route, queue_id, broker, endpoints) for queue_id in range(count)]


def any_queue(route: Route, *, broker: str, endpoints: Any) -> Any:
    """What a push consumer is told to receive from: all queues at once, as often as it asks."""
    queue = _queue(route, 0, broker, endpoints)
    queue.id = ANY_QUEUE
    return queue


def _queue(route: Route, queue_id: int, broker: str, endpoints: Any) -> Any:
    bits = route.perm & (PERMIT_READ | PERMIT_WRITE)
    if queue_id >= route.read_queues:
        bits &= ~PERMIT_READ
    if queue_id >= route.write_queues:
        bits &= ~PERMIT_WRITE
    queue = make("MessageQueue", topic={"name": route.topic}, id=queue_id)
    queue.permission = _PERMISSIONS.get(bits, QueuePermission.NONE)
    queue.broker.name = broker
    queue.broker.endpoints.CopyFrom(endpoints)
    queue.accept_message_types.extend(types_of(route.message_type))
    return queue


def _scheme(host: str) -> AddressScheme:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv4 if found.version == 4 else AddressScheme.IPv6
