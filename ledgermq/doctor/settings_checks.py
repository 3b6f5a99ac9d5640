"""Settings checks: that they can be used, what of them is unwise here, and the keys they name."""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from ledgermq.doctor.finding import Check, Diagnosis, fail, ok, warn
from ledgermq.doctor.subject import Subject, host_of, is_loopback
from ledgermq.hosts.accounts import account_name
from ledgermq.members.peer_addresses import parse_peer
from ledgermq.members.roster import RosterFile
from ledgermq.model.config.amounts import size_text
from ledgermq.model.config.settings import AckMode, ClusterState, LogKind, Settings
from ledgermq.model.config.settings_change import changed_keys, cluster_fingerprint
from ledgermq.model.errors import ConfigError, LedgerError
from ledgermq.model.ids import NodeId
from ledgermq.process.settings.reload import published_path
from ledgermq.process.settings.settings_loading import load_settings
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
from ledgermq.sessions.keys.receipt_key import read_signer
from ledgermq.sessions.keys.user_secrets import UserSecrets

VOTERS_MIN = 3
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITERS = stat.S_IWGRP | stat.S_IWOTH


def read_checked(path: Path) -> tuple[Settings | None, Diagnosis]:
    """The settings of the file, None when they cannot be used; and the finding about that."""
    try:
        settings = load_settings(path)
    except ConfigError as error:
        return None, fail(
            "settings.file",
            str(error),
            limit="what docs/operating/settings.md allows",
            change=f"correct {path}; `ledgermq config check {path}` tells all mistakes",
        )
    fingerprint = cluster_fingerprint(settings)
    return settings, ok("settings.file", f"{path}, cluster fingerprint {fingerprint}")


def settings_checks(subject: Subject) -> Iterator[Diagnosis]:
    """Findings about settings that can be used, each for itself."""
    yield from _in_force(subject)
    yield _members(subject)
    if subject.settings.node.witness:
        return  # no message is stored there, and none is acknowledged
    yield _address(subject)
    yield _acknowledgement(subject)
    if subject.settings.cold.place is not None:
        yield _cold(subject, subject.settings.cold.place)
    if subject.settings.receipts.key_file is not None:
        yield _receipts(subject, subject.settings.receipts.key_file)


def _in_force(subject: Subject) -> Iterator[Diagnosis]:
    if subject.status is None:
        return
    path = published_path(subject.settings.listen.runtime_dir)
    check = Check("settings.in-force", "those of the file")
    try:
        running = load_settings(path)
    except ConfigError as error:
        yield check.warn(str(error), "run doctor as the node's account or as root")
        return
    keys = changed_keys(running, subject.settings)
    if keys:
        yield check.warn(
            f"the node runs with other values of {', '.join(keys)}",
            "reload the node (SIGHUP), or restart it",
        )
    else:
        yield ok("settings.in-force", "the node runs with those of the file")


def _members(subject: Subject) -> Diagnosis:
    node = subject.settings.node
    if subject.settings.store.log is LogKind.COMMITLOG:
        return ok("settings.members", 'store.log = "commitlog": one copy, not replicated')
    entries = RosterFile(subject.paths.members).entries
    if entries:
        membership = entries[-1].roster.membership
        voters = len(membership.voters)
        named = {str(parse_peer(peer)[0]) for peer in node.peers}
        if node.peers and named != set(membership.members):
            return warn(
                "settings.members",
                f"node.peers names {', '.join(sorted(named))}; the log names "
                f"{', '.join(sorted(membership.members))}",
                limit="the same",
                change="bring node.peers up to date: the log counts, but a new disk begins with"
                " the settings",
            )
    else:
        voters = len(node.peers) or 1
    if voters == 1:
        return ok("settings.members", "a group of one")
    check = Check("settings.members", f"an odd number, at least {VOTERS_MIN}")
    if voters < VOTERS_MIN or voters % 2 == 0:
        return check.warn(
            f"{voters} voters",
            "add a member (ledgermq raft add): an even number survives no more than one less",
        )
    return check.ok(f"{voters} voters")


def _address(subject: Subject) -> Diagnosis:
    node, listen = subject.settings.node, subject.settings.listen
    address = ipaddress.ip_address(node.broker_ip)
    hosts = {parse_peer(peer)[1].host for peer in node.peers}
    endpoints = (listen.produce, listen.consume, listen.remoting, listen.name_server)
    hosts |= {host_of(endpoint) for endpoint in endpoints if endpoint}
    far = [host for host in hosts if not is_loopback(host)]
    check = Check("settings.broker-ip", "an address under which other machines know this node")
    if address.is_loopback and far:
        return check.warn(
            f"node.broker_ip = {node.broker_ip}",
            "set node.broker_ip: RocketMQ's clients are told to find the node there, and it"
            " becomes a part of every message's id",
        )
    return check.ok(node.broker_ip)


def _acknowledgement(subject: Subject) -> Diagnosis:
    mode = subject.settings.ack.mode
    measured = f"ack.mode = {mode.value}"
    is_new = subject.settings.node.initial_cluster_state is ClusterState.NEW
    if mode is AckMode.LOSSY_LEADER and is_new and len(subject.settings.node.peers) > 1:
        return warn(
            "settings.acknowledgement",
            measured,
            limit="majority-fsync, or majority-memory",
            change="with `lossy-leader`, what was acknowledged is lost with the leader's disk",
        )
    return ok("settings.acknowledgement", measured)


def _cold(subject: Subject, place: str) -> Diagnosis:
    """Whether what the log has no more is read, and how much of it is not sealed."""
    check = Check("settings.cold", "pieces that are read, and have the log")
    if importlib.util.find_spec("pyarrow") is None:
        return check.fail(
            f"{place}, and no library that reads pieces", "pip install 'ledgermq[spark]'"
        )
    if subject.status is None:
        return check.ok(f"{place}: not asked, the node does not run")
    counters = subject.status["counters"].get("cold", {})
    away_s, sealed = counters.get("away_since", 0), counters.get("sealed_position", 0)
    if away_s:
        since = datetime.fromtimestamp(away_s, UTC).isoformat(timespec="seconds")
        return check.warn(
            f"{place}: away since {since}",
            "see its reason in the log of the node: network, keys, a folder that is not mounted, or"
            " nothing was sealed there yet (ledgermq piece seal)",
        )
    if not sealed:
        return check.warn(
            f"{place}: not read through yet",
            "wait, or see in the log of the node which piece is not what was sealed",
        )
    committed = subject.status["cursors"]["committed"]["position"]
    return check.ok(f"{place}: lacks {size_text(max(0, committed - sealed))} of the log")


def _receipts(subject: Subject, path: Path) -> Diagnosis:
    """Whether checkpoints of receipts can be signed, and are made."""
    check = Check("settings.receipts", "a key, and no checkpoint that fails")
    try:
        key = read_signer(path).key.as_text()
    except LedgerError as error:
        return check.fail(error.message, "the same key on all members: ledgermq receipt key")
    failed = 0
    if subject.status is not None:
        failed = subject.status["counters"].get("receipts", {}).get("failed", 0)
    if failed:
        return check.warn(
            f"{failed} checkpoints failed since the node was started",
            "see the reason in the log of the node: checkpoint of receipts not made",
        )
    return check.ok(f"signed by {key}: all members have to say the same")


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
    check = Check("keys.users", "secrets of users are sealed with a key of this node's")
    try:
        keys = UserSecrets(settings)
        table = json.loads(file.read_bytes()) if file.exists() else {}
    except (LedgerError, OSError, ValueError) as error:
        yield check.fail(str(error), "see docs/operating/keys.md")
        return
    shared = _secrets_of(table.get(CLUSTER_USERS_KEY, {}))
    own = _secrets_of(table.get(USERS_KEY, {}))
    secrets = {**own, **shared}
    clear = [name for name, secret in secrets.items() if not is_sealed(secret)]
    foreign = [name for name, secret in secrets.items() if not keys.opens(name, secret)]
    if foreign:
        missing = CLUSTER_USERS_FILE if foreign[0] in shared else USERS_FILE
        yield check.fail(
            f"not to be opened here: {', '.join(sorted(foreign)[:5])}",
            f"copy {missing} of another member to {keys_directory(settings)}, and reload",
        )
    elif clear:
        yield check.warn(
            f"as they are in the log: {', '.join(sorted(clear)[:5])}",
            "make a key (ledgermq acl keys --users), copy it to all members, and give these"
            " users new secrets",
        )
    else:
        yield check.ok(f"{len(secrets)} secrets")


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
    check = Check("keys.members", "secret and public keys of all members, mode 0600 and 0644")
    try:
        load_keys(settings)
    except LedgerError as error:
        yield check.fail(
            str(error),
            f"copy this member's folder of `ledgermq keys init` to {folder}, chmod 600"
            f" {secret.name}",
        )
        return
    yield check.ok(f"{len(settings.node.peers)} members' keys in {folder}")
    yield _folder(folder)
    yield _owner(subject, secret)
    yield _roster(subject, folder)


def _folder(folder: Path) -> Diagnosis:
    mode = stat.S_IMODE(folder.stat().st_mode)
    check = Check("keys.folder", "others cannot write")
    if not mode & _WRITERS:
        return check.ok(f"mode {mode:04o}")
    return check.fail(
        f"mode {mode:04o}", f"chmod 700 {folder}: who can put a key there lets a member in"
    )


def _owner(subject: Subject, secret: Path) -> Diagnosis:
    owner, account = secret.stat().st_uid, subject.account
    check = Check("keys.owner", f"of {account_name(account)}, whose the node is")
    measured = f"{secret.name} is of {account_name(owner)}"
    if account in (owner, 0):
        return check.ok(measured)
    return check.fail(measured, f"chown {account_name(account)} {secret}")


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
    check = Check("keys.roster", "a public key of each member that the log names")
    if own not in known[-1].roster.membership.members:
        return check.fail(
            f"{own} is none of the members that the log names",
            "stop this node, or add it again (ledgermq raft add, asked of the leader)",
        )
    if missing:
        return check.fail("; ".join(missing), f"copy those public keys to {folder}")
    return check.ok(f"{len(others)} members")


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
    check = Check("keys.clients", "a secret key, mode 0600")
    try:
        load_client_secret(listen)
    except LedgerError as error:
        yield check.fail(str(error), "ledgermq acl keys --node FILE, or chmod 600")
        return
    yield check.ok(str(listen.curve_secret_file))
