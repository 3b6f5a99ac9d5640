"""Membership changes by an operator: one step a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledgermq.members.roster import check_address, is_node_id
from ledgermq.model.errors import ConfigError
from ledgermq.model.features import LEVEL_OF_BODILESS
from ledgermq.model.ids import NodeId
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.membership import Membership
from ledgermq.raft_node.alone import FixedMembership
from ledgermq.raft_node.entries.membership_log import MembershipLog
from ledgermq.raft_node.peers.peers import Peers

MEMBER_KINDS = ("learner", "voter", "witness", "bodiless")
"""The last one is a witness, too, but one without bodies, which is no learner before."""


class MembershipControl:
    """Owned by the raft process, behind its control socket."""

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
