"""The other nodes of the group, as the raft process sees them: who votes, and the way to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import zmq

from ledgermq.daemon.loop import Pollable
from ledgermq.ipc.doorbell import Context
from ledgermq.model.ids import NodeId
from ledgermq.model.settings import Settings


class PeerMessage(NamedTuple):
    """What a peer has sent; the parts are views of ZeroMQ's buffers and keep them alive."""

    node: NodeId
    parts: list[memoryview]


class PeerGroup:
    """A group of one has no sockets."""

    def __init__(self, context: Context, self_id: NodeId, endpoints: Mapping[NodeId, str]) -> None:
        self.voters = (self_id, *(node for node in endpoints if node != self_id))
        self.refusals: dict[NodeId, str] = {}
        self._self = self_id
        self._in: zmq.Socket[bytes] | None = None
        self._out: dict[NodeId, zmq.Socket[bytes]] = {}
        if len(self.voters) > 1:
            self._in = context.socket(zmq.ROUTER)
            self._in.setsockopt(zmq.LINGER, 0)
            self._in.bind(endpoints[self_id])
            for node, endpoint in endpoints.items():
                if node != self_id:
                    out = context.socket(zmq.DEALER)
                    out.setsockopt(zmq.LINGER, 0)
                    out.setsockopt(zmq.IMMEDIATE, 1)
                    out.setsockopt(zmq.RECONNECT_IVL, 20)
                    out.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
                    out.connect(endpoint)
                    self._out[node] = out

    @classmethod
    def of(cls, settings: Settings, context: Context) -> Self:
        """The group that the settings name."""
        own = NodeId(settings.node.self_id)
        endpoints = {}
        for peer in settings.node.peers:
            name, _, address = peer.partition("-")
            endpoints[NodeId(name)] = f"tcp://{address}"
        return cls(context, own, endpoints or {own: ""})

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process."""
        return [] if self._in is None else [self._in]

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        """Hand a message to ZeroMQ; false when it takes none for that peer now."""
        try:
            self._out[peer].send_multipart([self._self.encode(), *parts], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        return True

    def receive(self) -> PeerMessage | None:
        """The next message of a peer, None when none waits."""
        if self._in is None:
            return None
        try:
            frames = self._in.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return PeerMessage(NodeId(frames[1].bytes.decode()), [frame.buffer for frame in frames[2:]])

    def close(self) -> None:
        """Close the sockets."""
        for out in self._out.values():
            out.close(0)
        if self._in is not None:
            self._in.close(0)
