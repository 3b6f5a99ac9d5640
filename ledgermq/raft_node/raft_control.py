"""Control socket of the raft process (``RUNTIME/raft.sock``): status, transfer, members.

→ {"verb": "status"}                        ← role, term, leader, members, how far each is
→ {"verb": "why-no-leader"}                 ← {"leader": …, "reasons": […]}
→ {"verb": "transfer", "target": "n1"}      ← {"target": "n1"}: begun, watch status
→ {"verb": "hear", "node": "n3"}             ← {"is_heard": true}: it may be added, or an error
→ {"verb": "add", "node": "n3", "address": "10.0.0.4:40911", "kind": "learner"}
→ {"verb": "add", "node": "n3", "kind": "voter"}
→ {"verb": "add", "node": "n3", "address": "10.0.0.4:40911", "kind": "bodiless"}
→ {"verb": "remove", "node": "n3"}          ← {"members": "n0, n1, n2"}: begun, watch status
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ledgermq.model.errors import BusyError, ConfigError, ProtocolError
from ledgermq.model.features import LEVEL
from ledgermq.model.ids import NodeId
from ledgermq.process.polled_control import PolledControl
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.status import CoreStatus
from ledgermq.raft_node.alone import FixedMembership
from ledgermq.raft_node.entries.membership_log import MembershipLog
from ledgermq.raft_node.peers.membership_control import MembershipControl
from ledgermq.raft_node.peers.peers import Peers

AUDITED_VERBS = frozenset({"transfer", "forget", "resign", "hear", "add", "remove"})
"""Those of operators alone, each of which leaves a line in the log: what changes something, and
``hear``, which has the key of a node loaded and asks that node."""

_Answer = Callable[[Mapping[str, object]], Mapping[str, object]]


class RaftControl(PolledControl):
    """Owned by the raft process."""

    def __init__(
        self,
        path: Path,
        mode: int,
        core: RaftCore,
        carry_out: Callable[[Effects], None],
        peers: Peers,
        *,
        memberships: MembershipLog | FixedMembership,
        level_in_force: Callable[[], int],
    ) -> None:
        """Listen at ``path``.

        Raises:
            ConfigError: the path is too long for a socket.
            StorageError: the socket cannot be made there.
        """
        self._core = core
        self._carry_out = carry_out
        self._peers = peers
        members = MembershipControl(core, carry_out, peers, memberships, level_in_force)
        self._answers: Mapping[str, _Answer] = {
            "status": self._status,
            "why-no-leader": self._why_no_leader,
            "transfer": self._transfer,
            "forget": self._forget,
            "resign": self._resign,
            "hear": members.hear,
            "add": members.add,
            "remove": members.remove,
        }
        super().__init__(path, mode, self._answer, audited=AUDITED_VERBS)

    def _answer(self, verb: str, request: Mapping[str, object]) -> Mapping[str, object]:
        answer = self._answers.get(verb)
        if answer is None:
            raise ProtocolError("unknown verb", verb=verb, expected=tuple(self._answers))
        return answer(request)

    def _status(self, _request: Mapping[str, object]) -> Mapping[str, object]:
        levels = {**self._peers.levels, self._core.node: LEVEL}
        return {
            **status_document(self._core.status(), self._peers.refusals),
            "levels": {node: levels.get(node) for node in sorted(self._core.membership.members)},
            "direct": sorted(self._peers.direct),
        }

    def _why_no_leader(self, _request: Mapping[str, object]) -> Mapping[str, object]:
        reasons = self._core.why_no_leader()
        reasons += [f"{peer}: {reason}" for peer, reason in self._peers.refusals.items()]
        return {"leader": self._core.leader, "reasons": reasons}

    def _transfer(self, request: Mapping[str, object]) -> Mapping[str, object]:
        target = self._member(request.get("target"))
        self._carry_out(self._core.transfer_leadership(target))
        return {"target": target}

    def _forget(self, request: Mapping[str, object]) -> Mapping[str, object]:
        return {"forgotten": self._peers.forget(self._member(request.get("node")))}

    def _member(self, name: object) -> NodeId:
        members = self._core.membership.members
        if not isinstance(name, str) or name not in members:
            raise ConfigError("no such member", node=name, members=sorted(members))
        return NodeId(name)

    def _resign(self, _request: Mapping[str, object]) -> Mapping[str, object]:
        """Hand over to the member that lacks the least, and could lead.

        Raises:
            NotLeaderError, BusyError: there is nothing to hand over, or nobody to take it.
        """
        status = self._core.status()
        able = [peer for peer in status.peers if peer.fit and peer.peer in self._electable]
        if not able:
            raise BusyError("no member could lead now", leader=status.leader)
        target = max(able, key=lambda peer: (peer.match, -peer.silent_for)).peer
        self._carry_out(self._core.transfer_leadership(target))
        return {"target": target}

    @property
    def _electable(self) -> frozenset[NodeId]:
        return self._core.membership.electable


def status_document(status: CoreStatus, refusals: Mapping[NodeId, str]) -> dict[str, object]:
    """The core's status as JSON; times in milliseconds, sizes in bytes."""
    membership = status.membership
    return {
        "node": status.node,
        "role": status.role.value,
        "term": status.term,
        "vote": status.vote,
        "leader": status.leader,
        "last": {"term": status.last.term, "index": status.last.index},
        "held": status.held,
        "commit": status.commit,
        "writer": status.writer.value,
        "disk_is_sick": status.sick,
        "is_outdated": status.outdated,
        "lost": status.lost and {"term": status.lost.term, "index": status.lost.index},
        "voters": sorted(membership.voters),
        "learners": sorted(membership.learners),
        "witnesses": sorted(membership.witnesses),
        "bodiless": sorted(membership.bodiless),
        "leans_on_witness": status.leans,
        "copies": status.copies,
        "membership_index": status.membership_index,
        "transfer": status.transfer,
        "peers": [
            {
                "node": peer.peer,
                "mode": peer.mode.value,
                "match": peer.match,
                "next": peer.next,
                "behind": status.last.index - peer.match,
                "in_flight": peer.inflight_count,
                "in_flight_bytes": peer.inflight_bytes,
                "silent_ms": peer.silent_for,
                "could_lead": peer.fit,
            }
            for peer in status.peers
        ],
        "refusals": dict(refusals),
    }
