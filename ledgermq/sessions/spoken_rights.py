"""Rights of a session that an operator opens for somebody else: those of whom it speaks for.

The observer does so, for who asks over HTTP: so rights are looked at in one place, and an act has
the name of who wanted it.
"""

from __future__ import annotations

from dataclasses import replace

from ledgermq.model.errors import NoPermissionError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.rights import Right
from ledgermq.sessions.client_rights import AccessGate, ClientRights, Peer, Who
from ledgermq.wire.session import ACCOUNT, ADMIN, ANY_USER, LOOKS, SpokenFor


def rights_of(gate: AccessGate, peer: Peer, spoken: SpokenFor | None) -> ClientRights:
    """What a session may do that begins now.

    Raises:
        NoPermissionError: ``peer`` speaks for somebody, and is no operator.
    """
    if spoken is None:
        return ClientRights(gate, peer)
    who = gate.who(peer)
    if not who.is_operator:
        raise NoPermissionError(
            "only the node's operators speak for others", client=who.name, speaks_for=spoken.name
        )
    return SpokenRights(gate, peer, spoken)


class SpokenGate(AccessGate):
    """The rules for one who is spoken for.

    Who has the rights of a user has no others, also where users are not checked otherwise.
    """

    def __init__(self, gate: AccessGate, spoken: SpokenFor) -> None:
        """Rules that follow those of ``gate``."""
        super().__init__(gate.settings, gate.users, check_users=gate.check_users)
        self._of = gate
        self._spoken = spoken
        self._taken = gate.settings
        self._take()

    @property
    def revision(self) -> tuple[int, int]:
        if self._taken is not self._of.settings:
            self._take()
        return self._of.revision

    @property
    def is_on(self) -> bool:
        if self._taken is not self._of.settings:
            self._take()
        return self.settings.enabled

    def who(self, peer: Peer) -> Who:
        """Who is spoken for, whoever ``peer`` is."""
        spoken = self._spoken
        if spoken.kind == ACCOUNT:
            who = self._of.who(Peer(f"localhost:{spoken.uid}:{spoken.gid}:0"))
            return who._replace(name=f"{who.name} (http)")
        if spoken.kind == ANY_USER:
            return Who(f"{spoken.user} (http, {spoken.name})", spoken.user, is_operator=False)
        return Who(f"{spoken.name} (http)", "", is_operator=spoken.kind == ADMIN)

    def _take(self) -> None:
        self._taken = settings = self._of.settings
        is_account = self._spoken.kind == ACCOUNT
        self.settings = settings if is_account else replace(settings, enabled=True)


class SpokenRights(ClientRights):
    """What a session may do that speaks for somebody."""

    __slots__ = ("_kind", "_node_gate")

    def __init__(self, gate: AccessGate, peer: Peer, spoken: SpokenFor) -> None:
        super().__init__(SpokenGate(gate, spoken), peer)
        self._kind = spoken.kind
        self._node_gate = gate

    @property
    def only_looks(self) -> bool:
        return self._kind == LOOKS

    def check_topic(self, topic: str, right: Right) -> None:
        """Refuse to use ``topic`` so; what the node notes for itself is not for HTTP's admins."""
        if topic == SYSTEM_TOPIC and self._kind == ADMIN:
            raise self._refusal(right.text, topic=topic)
        super().check_topic(topic, right)

    def check_admin(self, verb: str) -> None:
        """Refuse what only an admin may do; a user that comes over the network is not on this
        machine.
        """
        if self._kind == ANY_USER and not self._node_gate.settings.admin_over_clients:
            raise NoPermissionError(
                "admin calls of users are taken from this machine's unix sockets alone; a token"
                " may be an admin's",
                client=self.who.name,
                verb=verb,
                setting="access.admin_over_clients",
            )
        super().check_admin(verb)

    def _refusal(self, right: str, **resource: str) -> NoPermissionError:
        if self._kind == LOOKS:
            return NoPermissionError(
                "who may only look sees no message, and changes nothing",
                user=self.who.name,
                right=right,
                **resource,
            )
        return super()._refusal(right, **resource)
