"""Authentication and rights at the port, by RocketMQ's signatures.

Where ``access.enabled`` is off nothing is asked, but that admin calls are allowed over sockets
(``access.admin_over_clients``). A request with an access key must have the signature that the
user's secret makes, unless it comes from one of the user's addresses; one without a key is that of
the user to whom its address belongs.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ledgermq.broker.call_rights import act_of, audit
from ledgermq.formats.records.host_address import plain_address
from ledgermq.gateway.code_rights import CodeNeed
from ledgermq.gateway.leader_relay import RELAYED_KEY
from ledgermq.gateway.requests import Code
from ledgermq.model.config.settings import AccessSection
from ledgermq.model.errors import ConfigError, NoPermissionError
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.model.rights import Right
from ledgermq.remoting.command import Command
from ledgermq.remoting.signature import ACCESS_KEY, is_signed
from ledgermq.rules.access.access import User, UserTable
from ledgermq.rules.access.remote_address import matches
from ledgermq.sessions.client_rights import AccessGate, ClientRights, Peer

logger = logging.getLogger(__name__)

Open = Callable[[str, str], str]

REMEMBERED_MAX = 10_000
"""Users at addresses, with what they were let do."""

STRANGERS_TOLD_MAX = 256
"""Hosts that wanted to register, and may not: each has one line in the log."""


class PortAccess:
    """The rules of one port; the same for all its connections."""

    def __init__(
        self,
        settings: AccessSection,
        users: UserTable,
        open_secret: Open,
        *,
        registrars: Iterable[str] = (),
    ) -> None:
        """Rules that hold until there are other settings.

        Args:
            open_secret: a user's secret, from how it stands in the table.
            registrars: ``remoting.registrations_from``.
        """
        self._open_secret = open_secret
        self._gate = AccessGate(settings, users)
        self._reported: set[str] = set()
        self._known: OrderedDict[tuple[str, str], ClientRights] = OrderedDict()
        self._registrars = [ipaddress.ip_network(one) for one in registrars]
        self._strangers: set[str] = set()

    def take_settings(self, settings: AccessSection, registrars: Iterable[str] = ()) -> None:
        """The settings were read again: they count from the next request on."""
        self._gate.take_settings(settings)
        self._registrars = [ipaddress.ip_network(one) for one in registrars]
        self._strangers.clear()

    @property
    def is_open(self) -> bool:
        """Whether users are not checked, and there are none whose quotas would count."""
        return not (self._gate.settings.enabled or self._gate.users)

    def admitted(self, host: str, command: Command, row: Code) -> ClientRights:
        """The rights of who sends a request, which has those that its code needs.

        Args:
            host: address of the peer.
            row: of the code.

        Raises:
            NoPermissionError: it is nobody, is not who it says, or has no right to that.
            ProtocolError: a field is missing that says what the request is about.
        """
        need, find = row.needs
        if need is CodeNeed.BROKER:
            self._check_registrar(host)
            return self._rights(host, "")
        if not self._gate.is_on:
            rights = self._rights(host, "")
            if need is CodeNeed.ADMIN:
                _check_admin(rights, row)
            if command.fields.get("topic") == SYSTEM_TOPIC:
                rights.check_topic(SYSTEM_TOPIC, Right.SUB)
            return rights
        try:
            signed_by = self._signed_by(host, command)
        except NoPermissionError:
            # Who asks a name server is told where brokers are, and by these why they refuse.
            if need is not CodeNeed.OPEN:
                raise
            signed_by = ""
        rights = self._rights(host, signed_by)
        if need is CodeNeed.OPEN:
            return rights
        if need is CodeNeed.ADMIN:
            _check_admin(rights, row)
            return rights
        rights.check_known(row.code.name)
        for topic, right in find(command):
            if right is None:
                rights.check_group(topic)
            else:
                rights.check_topic(topic, right)
        return rights

    def _check_registrar(self, host: str) -> None:
        """Refuse a host that may not tell of brokers.

        Raises:
            NoPermissionError: it is in none of the networks.
        """
        found = ipaddress.ip_address(plain_address(host).partition("%")[0])
        if any(found in network for network in self._registrars):
            return
        error = NoPermissionError(
            "registrations of brokers are not taken from this host",
            host=host,
            setting="remoting.registrations_from",
        )
        if host not in self._strangers and len(self._strangers) < STRANGERS_TOLD_MAX:
            self._strangers.add(host)
            logger.warning("broker is refused: peer=%s reason=%s", host, error)
        raise error

    def _signed_by(self, host: str, command: Command) -> str:
        """The user whose access key the request has; empty when it has none.

        Raises:
            NoPermissionError: there is no such user, or the signature is another one.
        """
        key = command.fields.get(ACCESS_KEY, "")
        if not key:
            return ""
        user = self._gate.users.get(key)
        if user is None:
            raise NoPermissionError("access key is none of the node's users", key=key[:127])
        if matches(user.addresses, host):
            return key
        fields = {name: text for name, text in command.fields.items() if name != RELAYED_KEY}
        secret = self._secret_of(user)
        if not secret or not is_signed(fields, command.body, secret):
            raise NoPermissionError("signature of the request is wrong", user=key, peer=host)
        return key

    def _secret_of(self, user: User) -> str:
        """The secret with which a user signs.

        Raises:
            NoPermissionError: it was sealed with a key that this node does not have.
        """
        try:
            return self._open_secret(user.name, user.secret)
        except ConfigError as error:
            if user.secret not in self._reported:
                self._reported.add(user.secret)
                logger.error("signatures of a user cannot be checked: %s", error)
            raise NoPermissionError(
                "signature cannot be checked by this node: its log says why", user=user.name
            ) from error

    def _rights(self, host: str, signed_by: str) -> ClientRights:
        key = (host, signed_by)
        rights = self._known.get(key)
        if rights is None:
            while len(self._known) >= REMEMBERED_MAX:
                self._known.popitem(last=False)
            rights = self._known[key] = ClientRights(self._gate, Peer(host, signed_by=signed_by))
        else:
            self._known.move_to_end(key)
        return rights


def _check_admin(rights: ClientRights, row: Code) -> None:
    """Refuse what only an admin may do; that somebody tried is told."""
    name = row.code.name
    try:
        rights.check_admin(name)
    except NoPermissionError as error:
        audit(act_of(rights.who.name, name.lower(), {}), error)
        raise
