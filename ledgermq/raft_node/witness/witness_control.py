"""Control socket of a witness without bodies: the verbs of ``raft_control`` that no log needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ledgermq.model.errors import ConfigError, NotLeaderError, ProtocolError
from ledgermq.model.features import LEVEL
from ledgermq.model.ids import NodeId
from ledgermq.process.polled_control import PolledControl
from ledgermq.raft.membership import Membership
from ledgermq.raft.roles.witness import WitnessCore
from ledgermq.raft.status import witness_status
from ledgermq.raft_node.peers.peers import Peers
from ledgermq.raft_node.raft_control import AUDITED_VERBS, status_document

_OF_LEADERS = frozenset({"transfer", "resign", "hear", "add", "remove"})


class WitnessControl(PolledControl):
    """Owned by the raft process of a witness."""

    def __init__(self, path: Path, mode: int, core: WitnessCore, peers: Peers) -> None:
        """Listen at ``path``.

        Raises:
            ConfigError: the path is too long for a socket.
            StorageError: the socket cannot be made there.
        """
        self._core = core
        self._peers = peers
        super().__init__(path, mode, self._answer, audited=AUDITED_VERBS)

    def _answer(self, verb: str, request: Mapping[str, object]) -> Mapping[str, object]:
        if verb == "status":
            return self._status()
        if verb == "forget":
            return {"forgotten": self._peers.forget(self._member(request.get("node")))}
        if verb == "why-no-leader":
            reasons = [f"{peer}: {reason}" for peer, reason in self._peers.refusals.items()]
            known = [] if self._core.leader else ["this node is a witness, and never leads"]
            return {"leader": self._core.leader, "reasons": known + reasons}
        if verb in _OF_LEADERS:
            raise NotLeaderError(
                "this node is a witness, and never leads", leader=self._core.leader
            )
        raise ProtocolError("unknown verb", verb=verb)

    def _status(self) -> Mapping[str, object]:
        own = frozenset({self._core.node})
        # Of the others it knows who they are, and not what.
        members = Membership(own.union(self._peers.voters), witnesses=own, bodiless=own)
        levels = {**self._peers.levels, self._core.node: LEVEL}
        return {
            **status_document(witness_status(self._core, members), self._peers.refusals),
            "role": "witness",
            "levels": {node: levels.get(node) for node in sorted(members.members)},
        }

    def _member(self, name: object) -> NodeId:
        members = sorted(self._peers.voters)
        if not isinstance(name, str) or name not in members:
            raise ConfigError("no such member", node=name, members=members)
        return NodeId(name)
