"""Users of RocketMQ's ``plain_acl.yml``.

What has no meaning here is named, and left out: ``globalWhiteRemoteAddresses`` let anybody do
anything, whoever they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from ledgermq.model.errors import ConfigError
from ledgermq.rules.access.access import PLAIN_LISTS, PLAIN_TEXTS, PUBLIC_KEYS, User

SIZE_MAX = 16 * 1024 * 1024
_KNOWN = frozenset({"accessKey", "admin", *PLAIN_TEXTS, *PLAIN_LISTS})
_PERMS = frozenset({"DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB"})


class PlainAcl(NamedTuple):
    """All fields by user that the file can say, checked; CURVE keys are none of them.

    ``left_out`` says what was not taken over, and why.
    """

    users: Mapping[str, Mapping[str, object]]
    left_out: tuple[str, ...]


def read_plain_acl(path: Path) -> PlainAcl:
    """The users in the file at ``path``.

    Raises:
        ConfigError: it cannot be read, or has another shape; names account and key.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError("file not read", file=str(path), reason=error.strerror) from error
    if len(content) > SIZE_MAX:
        raise ConfigError("file too large", file=str(path), size=len(content), limit=SIZE_MAX)
    try:
        document = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ConfigError("file is no YAML", file=str(path), reason=str(error)) from error
    if not isinstance(document, dict):
        raise ConfigError("file is no plain_acl.yml: no keys in it", file=str(path))
    left_out: list[str] = []
    if document.get("globalWhiteRemoteAddresses"):
        left_out.append(
            "globalWhiteRemoteAddresses: no address is let do everything here;"
            " give a user its addresses (ledgermq acl alter USER --addresses)"
        )
    accounts = document.get("accounts") or []
    if not isinstance(accounts, list):
        raise ConfigError("accounts is not a list", file=str(path))
    users: dict[str, Mapping[str, object]] = {}
    for number, account in enumerate(accounts, 1):
        name, fields = _user(account, number, left_out)
        if name in users:
            raise ConfigError("accessKey stands twice", file=str(path), accessKey=name)
        users[name] = fields
    return PlainAcl(users, tuple(left_out))


def _user(account: object, number: int, left_out: list[str]) -> tuple[str, Mapping[str, object]]:
    if not isinstance(account, dict) or "accessKey" not in account:
        raise ConfigError("account without an accessKey", account=number)
    # YAML takes 12345678 for a number; RocketMQ takes it for a text.
    name = str(account["accessKey"])
    fields: dict[str, object] = {"admin": account.get("admin") in (True, "true")}
    for key in PLAIN_TEXTS:
        if account.get(key) is not None:
            fields[key] = str(account[key]).strip()
    for key in ("defaultTopicPerm", "defaultGroupPerm"):
        if fields.get(key) and fields[key] not in _PERMS:
            # As in RocketMQ: what is no right is none.
            left_out.append(f"{name}: {key} {fields[key]!r} is no right, and counts as DENY")
            fields[key] = "DENY"
    for key in PLAIN_LISTS:
        fields[key] = [_perm(str(text), name, left_out) for text in account.get(key) or []]
    left_out += [f"{name}: {key} is not known" for key in sorted(account.keys() - _KNOWN)]
    whole = User.read(name, fields).all_fields()
    del whole[PUBLIC_KEYS]
    return name, whole


def _perm(text: str, name: str, left_out: list[str]) -> str:
    resource, equals, right = text.partition("=")
    if equals and right.strip() not in _PERMS:
        left_out.append(f"{name}: {text!r} names no right, and counts as DENY")
        return f"{resource}=DENY"
    return text
