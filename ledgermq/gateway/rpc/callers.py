"""Callers of gRPC: who asks, by the signature of a call and the address that it comes from.

The signature is over the time that the call's metadata names, and nothing else: whoever has read
one can send it again with any call, so only TLS makes it worth something. Some clients sign also
when they were given no key: then the call has no key, and its sender is who has its address.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from functools import partial
from hashlib import sha1
from typing import NamedTuple

from ledgermq.gateway.rpc.definition import RpcCode
from ledgermq.gateway.rpc.statuses import RpcRefusedError
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import NoPermissionError
from ledgermq.model.rights import Right
from ledgermq.process.access_files import AccessFiles
from ledgermq.sessions.client_rights import ClientRights, owner_of
from ledgermq.sessions.keys.user_secrets import UserSecrets
from ledgermq.sessions.signed_rights import SignedRights
from ledgermq.store.files.store_paths import StorePaths

CLIENT_ID_SIZE_MAX = 255
RELAYED = "x-ledgermq-relayed"
"""Metadata of a call that another member has handed on: it is not handed on again, and where it
comes from says nothing about who asks. Anybody can say it of his own call, and has nothing of it:
no right comes with it, and what he takes is counted with the address that he has."""

_SIGNED = re.compile(
    r"MQv2-HMAC-SHA1 +Credential=(?P<key>[^,/]*)[^,]*, *SignedHeaders=(?P<headers>[^,]*),"
    r" *Signature=(?P<signature>[0-9A-Fa-f]*)"
)

Metadata = Iterable[tuple[str, str | bytes]]


class RpcCaller(NamedTuple):
    """Who calls.

    Attributes:
        client_id: the name that the client gave itself.
        host: address that it comes from; of a call that was handed on that of the member.
        user: name of the user that it is; empty: none of them.
        is_checked: what it may is looked at.
        is_relayed: another member has handed the call on.
    """

    client_id: str
    host: str
    rights: ClientRights
    user: str
    is_checked: bool
    is_relayed: bool

    @property
    def owner(self) -> str:
        """Whose share of the bounds it takes."""
        return owner_of(self.user, self.host)

    def check_topic(self, topic: str, right: Right) -> None:
        """Refuse to use ``topic`` so.

        Raises:
            NoPermissionError: the caller may not.
        """
        self.rights.check_topic(topic, right)

    def check_group(self, group: str) -> None:
        """Refuse to consume as ``group``.

        Raises:
            NoPermissionError: the caller may not.
        """
        self.rights.check_group(group)


class Callers:
    """The rules of the process, and the users that there are: read again when the broker has
    written them.
    """

    def __init__(self, settings: Settings) -> None:
        """Read users and keys.

        Raises:
            ConfigError, CorruptLogError, StorageError: a file cannot be read.
        """
        self.files = AccessFiles(StorePaths.of(settings).own)
        self._secrets = UserSecrets(settings)
        self._signed = SignedRights(settings.access, self.files.users, self._secrets.opened)

    def take_settings(self, settings: Settings) -> None:
        """The settings were read again, and so are the keys that open secrets."""
        self._secrets.read_again()
        self._signed.gate.take_settings(settings.access)

    def caller(self, metadata: Metadata, host: str) -> RpcCaller:
        """Who has sent a call with this metadata.

        Raises:
            RpcRefusedError: the client does not name itself, or its signature is wrong.
            CorruptLogError, ConfigError, StorageError: users cannot be read now.
        """
        told = {name: one for name, one in metadata if isinstance(one, str)}
        client_id = told.get("x-mq-client-id", "")
        if not 0 < len(client_id) <= CLIENT_ID_SIZE_MAX:
            raise RpcRefusedError(
                RpcCode.CLIENT_ID_REQUIRED, "call names no client", limit=CLIENT_ID_SIZE_MAX
            )
        is_relayed = RELAYED in told
        # By which somebody would be known who has no key; a member vouches for nobody.
        known_by = "" if is_relayed else host
        gate = self._signed.gate
        signed_by = ""
        self.files.read_changes()
        if gate.is_on:
            try:
                signed_by = self._signer(told, known_by)
            except NoPermissionError as error:
                raise RpcRefusedError(RpcCode.UNAUTHORIZED, str(error)) from error
        rights = self._signed.rights(known_by, signed_by)
        if gate.is_on:
            try:
                rights.check_known("gRPC")
            except NoPermissionError as error:
                raise RpcRefusedError(RpcCode.UNAUTHORIZED, str(error)) from error
        return RpcCaller(client_id, host, rights, rights.who.user, gate.is_on, is_relayed)

    def _signer(self, told: Mapping[str, str], host: str) -> str:
        found = _SIGNED.fullmatch(told.get("authorization", ""))
        if found is None:
            return ""
        time = told.get("x-mq-date-time", "")
        return self._signed.signer(
            host, found["key"], partial(_is_signed, time, found["signature"].lower())
        )


def _is_signed(time: str, given: str, secret: str) -> bool:
    right = hmac.new(secret.encode(), time.encode(errors="replace"), sha1).hexdigest()
    return hmac.compare_digest(right, given)
