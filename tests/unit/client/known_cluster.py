"""Groups of one peer each that know of one another."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.client.peer import Peer

MakeCluster = Callable[[str], dict[str, Peer]]

DEAD = "tcp://127.0.0.1:1"
"""Nobody listens there: ports below 1024 are not given to who asks for any."""


def make_known(peers: dict[str, Peer], *, number: int = 1, **others: str) -> None:
    """Let all groups know of one another, and of ``others`` at an address each."""
    nodes = {name: peer.address for name, peer in peers.items()} | others
    groups = [{"group": name, "nodes": [nodes[name]]} for name in sorted(nodes)]
    for name, peer in peers.items():
        peer.cluster = {"group": name, "cluster": "c", "number": number, "groups": groups}


def make_over(
    peers: dict[str, Peer],
    topic: str,
    *,
    fails_over: bool = False,
    order: bool = False,
    **shares: int,
) -> None:
    """Let all groups have a row of the topic: so many queues in each; 0: they are closed."""
    groups = [
        {"group": name, "queues": queues or 1, "phase": "open" if queues else "closed"}
        for name, queues in shares.items()
    ]
    for peer in peers.values():
        peer.topic_rows[topic] = {"groups": groups, "fails_over": fails_over, "order": order}
