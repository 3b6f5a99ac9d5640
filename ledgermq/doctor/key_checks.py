"""Key checks: there, readable by the node alone, and one for each member."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

from ledgermq.doctor.finding import Diagnosis, fail, ok, warn
from ledgermq.doctor.subject import Subject, account_name, host_of, is_loopback
from ledgermq.members.roster import RosterFile
from ledgermq.model.errors import LedgerError
from ledgermq.model.ids import NodeId
from ledgermq.rules.access.access import CLUSTER_USERS_KEY, USERS_KEY
from ledgermq.rules.access.access import FILE as USERS_TABLE
from ledgermq.rules.access.sealed_secret import is_sealed
from ledgermq.sessions.keys.client_keys import load_client_secret
from ledgermq.sessions.keys.peer_keys import (
    CLUSTER_USERS_FILE,
    USERS_FILE,
    is_alone,
    keys_directory,
    load_keys,
    read_public_key,
)
from ledgermq.sessions.keys.user_secrets import UserSecrets

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITERS = stat.S_IWGRP | stat.S_IWOTH


def key_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about the keys of members, and the node's key towards clients."""
    settings = subject.settings
    if is_alone(settings):
        yield ok("keys.members", "not needed: a group of one")
    elif not settings.raft.curve:
        yield warn(
            "keys.members",
            "members talk in the clear",
            limit="raft.curve = true",
            change="make keys (ledgermq keys init) and set raft.curve = true on all members, unless"
            " nobody else can reach their network",
        )
    else:
        yield from _member_keys(subject)
    yield from _users_key(subject)
    yield from _client_key(subject)


def _users_key(subject: Subject) -> Iterator[Diagnosis]:
    """Whether secrets of users are sealed, and can be opened here."""
    settings = subject.settings
    file = settings.store.path_root_dir / "ledgermq" / USERS_TABLE
    limit = "secrets of users are sealed with a key of this node's"
    try:
        keys = UserSecrets(settings)
        table = json.loads(file.read_bytes()) if file.exists() else {}
    except (LedgerError, OSError, ValueError) as error:
        yield fail("keys.users", str(error), limit=limit, change="see docs/operating/keys.md")
        return
    shared = _secrets_of(table.get(CLUSTER_USERS_KEY, {}))
    own = _secrets_of(table.get(USERS_KEY, {}))
    secrets = {**own, **shared}
    clear = [name for name, secret in secrets.items() if not is_sealed(secret)]
    foreign = [name for name, secret in secrets.items() if not keys.opens(name, secret)]
    if foreign:
        missing = CLUSTER_USERS_FILE if foreign[0] in shared else USERS_FILE
        yield fail(
            "keys.users",
            f"not to be opened here: {', '.join(sorted(foreign)[:5])}",
            limit=limit,
            change=f"copy {missing} of another member to {keys_directory(settings)}, and reload",
        )
    elif clear:
        yield warn(
            "keys.users",
            f"as they are in the log: {', '.join(sorted(clear)[:5])}",
            limit=limit,
            change="make a key (ledgermq acl keys --users), copy it to all members, and give these"
            " users new secrets",
        )
    else:
        yield ok("keys.users", f"{len(secrets)} secrets", limit=limit)


def _secrets_of(users: dict[str, object]) -> dict[str, str]:
    return {
        name: str(fields["secretKey"])
        for name, fields in users.items()
        if isinstance(fields, dict) and fields.get("secretKey")
    }


def _member_keys(subject: Subject) -> Iterator[Diagnosis]:
    settings = subject.settings
    folder = keys_directory(settings)
    secret = folder / f"{settings.node.self_id}.secret"
    limit = "secret and public keys of all members, mode 0600 and 0644"
    try:
        load_keys(settings)
    except LedgerError as error:
        yield fail(
            "keys.members",
            str(error),
            limit=limit,
            change=f"copy this member's folder of `ledgermq keys init` to {folder}, chmod 600"
            f" {secret.name}",
        )
        return
    yield ok("keys.members", f"{len(settings.node.peers)} members' keys in {folder}", limit=limit)
    yield _folder(folder)
    yield _owner(subject, secret)
    yield _roster(subject, folder)


def _folder(folder: Path) -> Diagnosis:
    mode = stat.S_IMODE(folder.stat().st_mode)
    limit = "others cannot write"
    if not mode & _WRITERS:
        return ok("keys.folder", f"mode {mode:04o}", limit=limit)
    return fail(
        "keys.folder",
        f"mode {mode:04o}",
        limit=limit,
        change=f"chmod 700 {folder}: who can put a key there lets a member in",
    )


def _owner(subject: Subject, secret: Path) -> Diagnosis:
    owner, account = secret.stat().st_uid, subject.account
    limit = f"of {account_name(account)}, whose the node is"
    measured = f"{secret.name} is of {account_name(owner)}"
    if account in (owner, 0):
        return ok("keys.owner", measured, limit=limit)
    return fail(
        "keys.owner", measured, limit=limit, change=f"chown {account_name(account)} {secret}"
    )


def _roster(subject: Subject, folder: Path) -> Diagnosis:
    """A member that joined later is in the log, and not in everybody's settings."""
    own = NodeId(subject.settings.node.self_id)
    known = RosterFile(subject.paths.members).entries
    if not known:
        return ok("keys.roster", "the log names no members yet: node.peers counts")
    missing = []
    others: dict[NodeId, bytes] = {}
    for node in sorted(known[-1].roster.membership.members):
        try:
            others[node] = read_public_key(folder, node, others=others)
        except LedgerError as error:
            missing.append(f"{node}: {error.message}")
    limit = "a public key of each member that the log names"
    if own not in known[-1].roster.membership.members:
        return fail(
            "keys.roster",
            f"{own} is none of the members that the log names",
            limit=limit,
            change="stop this node, or add it again (ledgermq raft add, asked of the leader)",
        )
    if missing:
        return fail(
            "keys.roster",
            "; ".join(missing),
            limit=limit,
            change=f"copy those public keys to {folder}",
        )
    return ok("keys.roster", f"{len(others)} members", limit=limit)


def _client_key(subject: Subject) -> Iterator[Diagnosis]:
    listen, access = subject.settings.listen, subject.settings.access
    endpoints = [endpoint for endpoint in (listen.produce, listen.consume) if endpoint]
    is_open = not all(is_loopback(host_of(endpoint)) for endpoint in endpoints)
    if listen.curve_secret_file is None:
        if is_open and not access.enabled:
            yield warn(
                "keys.clients",
                "clients come over tcp in the clear, and anybody may",
                limit="listen.curve_secret_file, access.enabled",
                change="make a key (ledgermq acl keys), and users; or let nobody else reach the"
                " ports",
            )
        else:
            yield ok("keys.clients", "not needed" if not is_open else "none: tcp is in the clear")
        return
    try:
        load_client_secret(listen)
    except LedgerError as error:
        yield fail(
            "keys.clients",
            str(error),
            limit="a secret key, mode 0600",
            change="ledgermq acl keys --node FILE, or chmod 600",
        )
        return
    yield ok("keys.clients", str(listen.curve_secret_file), limit="a secret key, mode 0600")
