"""Identity and rights of a client: found once a connection, and again when users change.

A client of the unix sockets is who the kernel says (``SO_PEERCRED``), mapped by
``access.unix_users``; one of tcp is who has its CURVE key, or without CURVE who has its address.
Root and the node's own account can read and change every file of the store anyway: on the unix
sockets they are *operators*, and nothing is refused to them.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ledgermq.model.config.settings import AccessSection
from ledgermq.model.errors import BusyError, NoPermissionError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.rights import Right
from ledgermq.rules.access.access import User, UserTable
from ledgermq.rules.access.remote_address import matches
from ledgermq.wire.session import ACCOUNT, ADMIN, ANY_USER, LOOKS, SpokenFor

_IPC_PEER = re.compile(r"localhost:(?P<uid>\d+):(?P<gid>\d+):(?P<pid>\d+)")
"""ZeroMQ's address of an ipc peer: its user, group and process."""

CHECKED_MAX = 10_000
"""Topics that one connection was let use, remembered."""


class Peer(NamedTuple):
    """What ZeroMQ knows of the other end of a connection; the same for all its messages.

    Attributes:
        address: of tcp the peer's; of ipc ``localhost:UID:GID:PID``; empty when nobody has told,
            as of a connection that speaks an older protocol than ZMTP 3. Then it is nobody.
        key: its CURVE key (Z85); empty without CURVE.
        signed_by: whose signature a request of RocketMQ's protocol has; empty without one.
    """

    address: str = ""
    key: str = ""
    signed_by: str = ""

    @property
    def is_local(self) -> bool:
        """Whether it is connected to a unix socket."""
        return not self.key and _IPC_PEER.fullmatch(self.address) is not None

    @property
    def uid(self) -> int | None:
        """Account of a local peer's process."""
        match = _IPC_PEER.fullmatch(self.address)
        return int(match["uid"]) if match is not None and match["uid"] else None

    @property
    def host(self) -> str:
        """Whose share of the node's limits it takes: a host, or an account of this machine; empty
        for operators, who always fit.
        """
        uid = self.uid if self.is_local else None
        if uid is None:
            return self.address or "unknown"
        return "" if uid in (0, os.geteuid()) else f"uid {uid}"

    @property
    def gid(self) -> int | None:
        """Group of a local peer's process."""
        match = _IPC_PEER.fullmatch(self.address)
        return int(match["gid"]) if match is not None and match["gid"] else None


def owner_of(user: str, host: str) -> str:
    """Whom a client's creations are counted with: its user, or else whoever shares its host."""
    return f"user:{user}" if user else host


class Who(NamedTuple):
    """Who a peer is.

    Attributes:
        name: for people, as ``orders (uid 1000)``.
        user: name in the table; empty: none of the users.
        is_operator: nothing is refused to it.
    """

    name: str
    user: str
    is_operator: bool


def _nothing() -> None:
    pass


class AccessGate:
    """The rules of one process; the same for all its clients."""

    def __init__(
        self,
        settings: AccessSection,
        users: UserTable,
        *,
        check_users: Callable[[], None] = _nothing,
    ) -> None:
        """Rules that hold until there are other settings.

        Args:
            users: kept up by the caller; ``revision`` tells when it is another.
            check_users: raises a retriable error while ``users`` may lack what was acknowledged.
        """
        self.settings = settings
        self.users = users
        self.check_users = check_users
        self._changes = 0

    def take_settings(self, settings: AccessSection) -> None:
        """The settings were read again: what holds for a client is found anew with its next act."""
        if settings != self.settings:
            self.settings = settings
            self._changes += 1

    @property
    def revision(self) -> tuple[int, int]:
        """Another one after each change of users or settings."""
        return self.users.revision, self._changes

    @property
    def is_on(self) -> bool:
        """Whether only users get in."""
        return self.settings.enabled

    def lets_key_in(self, key: bytes) -> bytes | None:
        """What a guard is to answer about a CURVE key: the key itself, None when it is nobody's.

        Raises:
            LedgerError: it may be somebody's of whom is not known yet; ask again.
        """
        if self.is_on and self.users.owner_of(key.decode()) is None:
            self.check_users()
            return None
        return key

    def who(self, peer: Peer) -> Who:
        """Who ``peer`` is by the users that there are now."""
        if peer.signed_by:
            user = self.users.get(peer.signed_by)
            told = f"{peer.signed_by} (signed, from {peer.address})"
            return Who(told, "" if user is None else user.name, False)
        if not (peer.address or peer.key):
            return Who("connection without an address", "", is_operator=False)
        if peer.is_local:
            return self._who_is_local(peer)
        if peer.key:
            user = self.users.owner_of(peer.key)
            told = f"key {peer.key} from {peer.address}"
            return Who(_named(user, told), "" if user is None else user.name, False)
        found = [user for user in self.users if matches(user.addresses, peer.address)]
        one = found[0] if len(found) == 1 else None
        return Who(_named(one, f"from {peer.address}"), "" if one is None else one.name, False)

    def _who_is_local(self, peer: Peer) -> Who:
        uid = peer.uid
        assert uid is not None, peer
        told = f"uid {uid}"
        if uid in (0, os.geteuid()):
            return Who(f"operator ({told})", "", is_operator=True)
        names = _account_names(uid, peer.gid)
        for entry in self.settings.unix_users:
            account, _, name = entry.partition("=")
            if account in names:
                return Who(f"{name} ({told})", name, is_operator=False)
        return Who(told, "", is_operator=False)


class ClientRights:
    """What one connection may do.

    Invariant: ``_may`` holds for the users and the settings at ``_revision``.
    """

    __slots__ = ("_gate", "_may", "_revision", "_who", "peer")

    def __init__(self, gate: AccessGate, peer: Peer) -> None:
        self.peer = peer
        self._gate = gate
        self._revision = gate.revision
        self._who = gate.who(peer)
        self._may: set[tuple[str, Right]] = set()

    @property
    def who(self) -> Who:
        """Who the client is now."""
        if self._revision != self._gate.revision:
            self._revision = self._gate.revision
            self._who = self._gate.who(self.peer)
            self._may.clear()
        return self._who

    @property
    def only_looks(self) -> bool:
        """Whether the client may ask for names and numbers of all, and for nothing else."""
        return False

    @property
    def is_admin(self) -> bool:
        """Whether the client may do with what belongs to any user as that does."""
        if not self._gate.is_on or self.who.is_operator:
            return True
        user = self._gate.users.get(self.who.user)
        return user is not None and user.admin

    def check_topic(self, topic: str, right: Right) -> None:
        """Refuse to use ``topic`` so.

        Args:
            right: one of those in it is enough.

        Raises:
            NoPermissionError: names client, right and topic.
            LedgerError: not all is known of the users now; ask again. So with all checks.
        """
        who = self.who
        if topic == SYSTEM_TOPIC and not who.is_operator:
            raise NoPermissionError(
                "what the node notes for itself is for its operators alone",
                user=who.name,
                right=right.text,
                topic=topic,
            )
        if not self._gate.is_on or who.is_operator:
            return
        self._gate.check_users()
        if (topic, right) in self._may:
            return
        if not self._user(right.text, topic=topic).may_use_topic(topic, right):
            raise self._refusal(right.text, topic=topic)
        if len(self._may) >= CHECKED_MAX:
            self._may.clear()
        self._may.add((topic, right))

    def check_group(self, group: str) -> None:
        """Refuse to consume as ``group``.

        Raises:
            NoPermissionError: names client, right and group.
        """
        if not self._gate.is_on or self.who.is_operator:
            return
        if not self._user(Right.SUB.text, group=group).may_use_group(group):
            raise self._refusal(Right.SUB.text, group=group)

    def check_known(self, verb: str) -> None:
        """Refuse who is none of the users.

        Raises:
            NoPermissionError: names client and verb.
        """
        if self._gate.is_on and not self.who.is_operator:
            self._user(verb)

    def check_listed(self, verb: str) -> None:
        """Refuse a call of which nobody has said that users may make it, to all but admins.

        Raises:
            NoPermissionError: names client and verb.
        """
        if self._gate.is_on and not self.who.is_operator and not self._user(verb).admin:
            raise self._refusal(verb)

    def check_admin(self, verb: str) -> None:
        """Refuse what only an admin may do.

        Raises:
            NoPermissionError: names client, verb and the setting that would allow it.
        """
        who, settings = self.who, self._gate.settings
        if who.is_operator:
            return
        if not self.peer.is_local and not settings.admin_over_clients:
            raise NoPermissionError(
                "admin calls are taken from this machine's unix sockets alone: ipc:// and the"
                " node's listen.runtime_dir",
                client=who.name,
                verb=verb,
                setting="access.admin_over_clients",
            )
        if settings.enabled and not self._user(verb).admin:
            raise self._refusal(verb)

    def _user(self, right: str, **resource: str) -> User:
        self._gate.check_users()
        user = self._gate.users.get(self.who.user)
        if user is None:
            raise self._refusal(right, **resource)
        if user.too_old:
            # As long as the home of the cluster is away nobody knows; who asks again is served.
            raise BusyError(
                "rights of the cluster's users are too old: the home of the cluster has to be heard"
                " first",
                user=user.name,
                setting="access.cluster_rights_max_age_s",
            )
        return user

    def _refusal(self, right: str, **resource: str) -> NoPermissionError:
        who = self.who
        if not who.user:
            text = "client is none of the node's users"
        elif self._gate.users.get(who.user) is None:
            text = "user of the client does not exist"
        else:
            text = "user has not the right"
        return NoPermissionError(text, user=who.name, right=right, **resource)


def _named(user: User | None, told: str) -> str:
    return told if user is None else f"{user.name} ({told})"


def _account_names(uid: int, gid: int | None) -> frozenset[str]:
    """What ``access.unix_users`` may call an account: its name, number, and ``@`` its groups."""
    groups = set[int]() if gid is None else {gid}
    names = {str(uid)}
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        # A number without a name, as in containers.
        pass
    else:
        names.add(account.pw_name)
        groups.update(os.getgrouplist(account.pw_name, account.pw_gid))
    for group in groups:
        names.add(f"@{group}")
        try:
            names.add(f"@{grp.getgrgid(group).gr_name}")
        except KeyError:
            continue
    return frozenset(names)


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
    """What a session may do that an operator opens for somebody else.

    The observer does so, for who asks over HTTP: so rights are looked at in one place, and an act
    has the name of who wanted it.
    """

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
