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

from ledgermq.members.roster import check_address, is_node_id
from ledgermq.model.errors import BusyError, ConfigError, ProtocolError
from ledgermq.model.features import LEVEL, LEVEL_OF_BODILESS
from ledgermq.model.ids import NodeId
from ledgermq.process.control import PolledControl
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.membership import Membership
from ledgermq.raft.status import CoreStatus
from ledgermq.raft_node.alone import FixedMembership
from ledgermq.raft_node.entries.membership_log import MembershipLog
from ledgermq.raft_node.peers.peers import Peers

MEMBER_KINDS = ("learner", "voter", "witness", "bodiless")
"""The last one is a witness, too, but one without bodies, which is no learner before."""

AUDITED_VERBS = frozenset({"transfer", "forget", "resign", "hear", "add", "remove"})
"""Those of operators alone, each of which leaves a line in the log: what changes something, and
``hear``, which has the key of a node loaded and asks that node."""

_Answer = Callable[[Mapping[str, object]], Mapping[str, object]]


class MembershipControl:
    """Membership changes by an operator: one step a request."""

    def __init__(
        self,
        core: RaftCore,
        carry_out: Callable[[Effects], None],
        peers: Peers,
        memberships: MembershipLog | FixedMembership,
        level_in_force: Callable[[], int],
    ) -> None:
        """``level_in_force`` gives the group's feature level, as this node knows it."""
        self._core = core
        self._carry_out = carry_out
        self._peers = peers
        self._memberships = memberships
        self._level_in_force = level_in_force

    def hear(self, request: Mapping[str, object]) -> Mapping[str, object]:
        """Whether it is known that a node that is to be added is not too old for the group.

        Raises:
            ConfigError: it is, its name is wrong, or this node could not talk with it.
        """
        return {"is_heard": self._peers.check_new(_named(request))}

    def add(self, request: Mapping[str, object]) -> Mapping[str, object]:
        """Have the next step of a member's way into the group written: learner, then voter.

        Raises:
            ConfigError: the names are wrong, or this node could not talk with the new one.
            NotLeaderError, BusyError: as ``RaftCore.propose_membership`` has them.
        """
        member, kind, address = _named(request), request.get("kind"), request.get("address")
        if kind not in MEMBER_KINDS:
            raise ConfigError("unknown kind of member", kind=kind, expected=MEMBER_KINDS)
        if kind == "bodiless" and self._level_in_force() < LEVEL_OF_BODILESS:
            raise ConfigError(
                "a witness without bodies needs a feature level that is not in force yet:"
                " ledgermq cluster features says what it waits for",
                node=member,
                level=self._level_in_force(),
                needed=LEVEL_OF_BODILESS,
            )
        membership = self._core.membership
        known = member in membership.members
        if known and address is not None:
            raise ConfigError(
                "the member is there already: remove it before it comes back with another address",
                node=member,
                members=membership.describe(),
            )
        if not known:
            if not isinstance(address, str):
                raise ConfigError("a new member needs its address, as 10.0.0.4:40911", node=member)
            self._plan(member, address)
        else:
            # It may have come only now, and wait in vain to be let in.
            self._peers.check_level(member)
        voters, witnesses = membership.voters, membership.witnesses
        learners = membership.learners - {member}
        bodiless = membership.bodiless | ({member} if kind == "bodiless" else set())
        if kind == "learner":
            learners |= {member}
            voters -= {member}
            witnesses -= {member}
        else:
            voters |= {member}
            witnesses |= {member} if kind in ("witness", "bodiless") else set()
        return self._change(Membership(voters, learners, witnesses, bodiless & witnesses))

    def _plan(self, node: NodeId, address: str) -> None:
        check_address(node, address)
        self._peers.check_new(node)
        taken = self._memberships.current.addresses
        twin = next((other for other, known in taken.items() if known == address), None)
        if twin is not None:
            raise ConfigError("another member listens there", address=address, node=twin)
        self._memberships.plan(node, address)

    def remove(self, request: Mapping[str, object]) -> Mapping[str, object]:
        """Have the entry written after which the group goes on without a member.

        Raises:
            ConfigError: there is no such member, or it leads.
            NotLeaderError, BusyError: as ``RaftCore.propose_membership`` has them.
        """
        membership = self._core.membership
        node = request.get("node")
        if node not in membership.members:
            raise ConfigError("no such member", node=node, members=sorted(membership.members))
        gone = {node}
        return self._change(
            Membership(
                membership.voters - gone,
                membership.learners - gone,
                membership.witnesses - gone,
                membership.bodiless - gone,
            )
        )

    def _change(self, membership: Membership) -> Mapping[str, object]:
        self._carry_out(self._core.propose_membership(membership))
        return {"members": membership.describe()}


def _named(request: Mapping[str, object]) -> NodeId:
    node = request.get("node")
    if not isinstance(node, str) or not is_node_id(node):
        raise ConfigError("not the id of a member: one letter and a number, as n3", node=node)
    return NodeId(node)


LOOKS = ("status", "why-no-leader")
"""Verbs by which nothing changes."""


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
        before_change: Callable[[], None],
    ) -> None:
        """Listen at ``path``.

        Args:
            before_change: called before the core is asked for more than how things stand.

        Raises:
            ConfigError: the path is too long for a socket.
            StorageError: the socket cannot be made there.
        """
        self._core = core
        self._carry_out = carry_out
        self._peers = peers
        self._before_change = before_change
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
        if verb not in LOOKS:
            self._before_change()
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
                # The writer may have heard of it since the last turn.
                "silent_ms": max(0, peer.silent_for),
                "could_lead": peer.fit,
            }
            for peer in status.peers
        ],
        "refusals": dict(refusals),
    }
