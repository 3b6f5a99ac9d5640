"""Members of a group in one process, each with the sockets of a node, and peers that misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import zmq

from ledgermq.members.peer_identity import cluster_id
from ledgermq.model.config.settings import (
    AckMode,
    AckSection,
    LogKind,
    NodeSection,
    RaftSection,
    Settings,
    StoreSection,
)
from ledgermq.model.features import LEVEL
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peer_group import PeerGroup
from ledgermq.wire.peer_preamble import (
    AgreedSettings,
    Preamble,
    decode_refusal,
)
from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port

FILE_SIZE = 262_144
N0, N1, N2 = NodeId("n0"), NodeId("n1"), NodeId("n2")

Received = list[tuple[NodeId, list[bytes]]]


class Member:
    """The sockets of one node, in a context of its own, as in a process of its own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.group = PeerGroup.of(settings, self.context)
        self.received: Received = []

    def pump(self) -> Received:
        """Take all that waits, as the raft process does; all that ever came."""
        self.group.watch()
        while (message := self.group.receive()) is not None:
            self.received.append((message.node, [bytes(part) for part in message.parts]))
        return self.received

    def close(self) -> None:
        """Close all sockets; once more does no harm."""
        if not self.context.closed:
            self.group.close()
            self.context.destroy(linger=0)


class Members:
    """Makes members whose stores are in one folder, and closes all that were made."""

    def __init__(self, folder: Path, *, size: int = 3, keys: Path | None = None) -> None:
        self.folder = folder
        self.ports = [free_port() for _ in range(size)]
        self.peers = tuple(f"n{at}-127.0.0.1:{port}" for at, port in enumerate(self.ports))
        self.keys = keys
        self.made: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.made:
            member.close()

    def settings(
        self,
        node: NodeId,
        *,
        cluster: str = "c",
        log: LogKind = LogKind.DLEDGER,
        ack: AckMode = AckMode.MAJORITY_FSYNC,
        file_size: int = FILE_SIZE,
        max_message_size: int = 4_096,
        peers: tuple[str, ...] | None = None,
        root: str | None = None,
        keys: str | None = None,
        direct: bool = False,
        direct_port: int = 0,
        writers: bool = True,
    ) -> Settings:
        """Settings of ``node``; ``root`` and ``keys`` are folders' names, the node's by default."""
        return Settings(
            node=NodeSection(
                broker_cluster_name=cluster,
                self_id=node,
                peers=self.peers if peers is None else peers,
            ),
            store=StoreSection(
                path_root_dir=self.folder / (root or node),
                log=log,
                mapped_file_size_commit_log=file_size,
                max_message_size=max_message_size,
            ),
            ack=AckSection(mode=ack),
            raft=RaftSection(
                curve=self.keys is not None,
                keys_dir=None if self.keys is None else self.keys / (keys or node),
                direct=direct,
                direct_port=direct_port,
                direct_writers=writers,
            ),
        )

    def start(self, node: NodeId, **changes: object) -> Member:
        """Open the sockets of ``node``; ``changes`` are those of ``settings``."""
        member = Member(self.settings(node, **changes))  # type: ignore[arg-type]
        self.made.append(member)
        return member

    def endpoint(self, node: NodeId) -> str:
        """Where ``node`` listens."""
        return f"tcp://127.0.0.1:{self.ports[int(node[1:])]}"


def deliver(source: Member, target: Member, text: bytes) -> None:
    """Send until it has arrived: before the connection stands, sends are refused."""
    peer = NodeId(target.settings.node.self_id)
    expected = (NodeId(source.settings.node.self_id), [text])

    def has_arrived() -> bool:
        source.group.send(peer, [text])
        source.pump()
        return expected in target.pump()

    wait_until(has_arrived, f"{text!r}")


def refused(source: Member, target: Member) -> tuple[str, str]:
    """Send until both know that the source is refused: what the target says, and the source.

    Each may say more: members greet one another, so the source may refuse the target, too, and know
    that before it is told.
    """
    own, peer = NodeId(source.settings.node.self_id), NodeId(target.settings.node.self_id)
    begin = f"{peer} refuses {own}: "

    def both() -> tuple[str, str] | None:
        source.group.send(peer, [b"let me in"])
        source.pump()
        target.pump()
        here, there = target.group.refusals.get(own, ""), source.group.refusals.get(peer, "")
        reason = there.partition(begin)[2].partition("; ")[0]
        return (here, there) if reason and reason in here else None

    found: tuple[str, str] = wait_until(both, "the refusal")
    # What an earlier life of the source has sent may still come.
    assert (own, [b"let me in"]) not in target.received
    return found


def wait_unrefused(member: Member, *others: Member) -> None:
    """Until no refusal lasts for ``member``, while ``others`` do their part of handshakes.

    What was told by a peer that has ended since is shown for ten seconds.
    """

    def is_over() -> bool:
        for one in (member, *others):
            one.pump()
        return member.group.refusals == {}

    wait_until(is_over, "the end of all refusals")


@contextmanager
def raw_peer(
    endpoint: str, *, keys: Path | None = None, node: NodeId = N1, routing_id: bytes = b""
) -> Iterator[zmq.Socket[bytes]]:
    """A DEALER that says what it likes, connected without keys or with those of ``node`` for n0."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.LINGER, 0)
    if routing_id:
        dealer.setsockopt(zmq.ROUTING_ID, routing_id)
    if keys is not None:
        own = keys / node
        dealer.setsockopt(zmq.CURVE_SECRETKEY, (own / f"{node}.secret").read_bytes().strip())
        dealer.setsockopt(zmq.CURVE_PUBLICKEY, (own / f"{node}.public").read_bytes().strip())
        dealer.setsockopt(zmq.CURVE_SERVERKEY, (own / "n0.public").read_bytes().strip())
    dealer.connect(endpoint)
    try:
        yield dealer
    finally:
        context.destroy(linger=0)


def preamble_of(members: Members, source: NodeId = N1, target: NodeId = N0) -> Preamble:
    """What a member would say, but for the identity of its disk."""
    agreed = AgreedSettings(LogKind.DLEDGER, AckMode.MAJORITY_FSYNC, FILE_SIZE, 4_096)
    cluster = cluster_id(members.settings(source).node)
    return Preamble(source, target, cluster, b"i" * 16, agreed, LEVEL)


def wait_answer(dealer: zmq.Socket[bytes], target: Member) -> str:
    """The reason that a raw peer is refused with."""

    def answered() -> bool:
        target.pump()
        return bool(dealer.poll(0))

    wait_until(answered, "an answer")
    return decode_refusal(dealer.recv())
