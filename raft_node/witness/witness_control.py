"""Control socket of a witness without bodies: the verbs of ``raft_control`` that change nothing."""

from __future__ import annotations

import selectors
from collections.abc import Mapping
from pathlib import Path

from ledgermq.model.errors import NotLeaderError, ProtocolError
from ledgermq.process.control import ControlServer
from ledgermq.raft.membership import Membership
from ledgermq.raft.roles.witness import WitnessCore
from ledgermq.raft.status import witness_status
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.raft_node.raft_control import status_document

_OF_LEADERS = frozenset({"transfer", "resign", "hear", "add", "remove"})


class WitnessControl:
    """Owned by the raft process of a witness; ``source`` goes into its poll set."""

    def __init__(self, path: Path, mode: int, core: WitnessCore, peers: Peers) -> None:
        """Listen at ``path``.

        Raises:
            ConfigError: the path is too long for a socket.
            StorageError: the socket cannot be made there.
        """
        self._core = core
        self._peers = peers
        self._selector = selectors.EpollSelector()
        self._server = ControlServer(path, mode, self._selector, self._answer, audited=frozenset())

    @property
    def source(self) -> int:
        """A descriptor that can be read while a client waits."""
        return self._selector.fileno()

    def serve(self, now_ns: int) -> None:
        """Do what clients wait for; never blocks."""
        for key, _ in self._selector.select(0):
            self._server.serve(key.fd, now_ns)

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        self._server.close()
        self._selector.close()

    def _answer(self, verb: str, request: Mapping[str, object]) -> Mapping[str, object]:
        del request
        if verb == "status":
            own = frozenset({self._core.node})
            # Of the others it knows who they are, and not what.
            members = Membership(own.union(self._peers.voters), witnesses=own, bodiless=own)
            status = witness_status(self._core, members)
            return {**status_document(status, self._peers.refusals), "role": "witness"}
        if verb == "why-no-leader":
            reasons = [f"{peer}: {reason}" for peer, reason in self._peers.refusals.items()]
            known = [] if self._core.leader else ["this node is a witness, and never leads"]
            return {"leader": self._core.leader, "reasons": known + reasons}
        if verb in _OF_LEADERS:
            raise NotLeaderError(
                "this node is a witness, and never leads", leader=self._core.leader
            )
        raise ProtocolError("unknown verb", verb=verb)
