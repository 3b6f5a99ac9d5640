"""Settings checks: that they can be used, and what of them is unwise on this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path

from ledgermq.doctor.finding import Diagnosis, fail, ok, warn
from ledgermq.doctor.subject import Subject, host_of, is_loopback
from ledgermq.members.peer_addresses import parse_peer
from ledgermq.members.roster import RosterFile
from ledgermq.model.config.settings import AckMode, ClusterState, LogKind, Settings
from ledgermq.model.config.settings_change import changed_keys, cluster_fingerprint
from ledgermq.model.errors import ConfigError
from ledgermq.process.settings.reload import published_path
from ledgermq.process.settings.settings_loading import load_settings

VOTERS_MIN = 3


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


def _in_force(subject: Subject) -> Iterator[Diagnosis]:
    if subject.status is None:
        return
    path = published_path(subject.settings.listen.runtime_dir)
    try:
        running = load_settings(path)
    except ConfigError as error:
        yield warn(
            "settings.in-force",
            str(error),
            limit="those of the file",
            change="run doctor as the node's account or as root",
        )
        return
    keys = changed_keys(running, subject.settings)
    if keys:
        yield warn(
            "settings.in-force",
            f"the node runs with other values of {', '.join(keys)}",
            limit="those of the file",
            change="reload the node (SIGHUP), or restart it",
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
    limit = f"an odd number, at least {VOTERS_MIN}"
    if voters < VOTERS_MIN or voters % 2 == 0:
        return warn(
            "settings.members",
            f"{voters} voters",
            limit=limit,
            change="add a member (ledgermq raft add): an even number survives no more than one"
            " less",
        )
    return ok("settings.members", f"{voters} voters", limit=limit)


def _address(subject: Subject) -> Diagnosis:
    node, listen = subject.settings.node, subject.settings.listen
    address = ipaddress.ip_address(node.broker_ip)
    hosts = {parse_peer(peer)[1].host for peer in node.peers}
    endpoints = (listen.produce, listen.consume, listen.remoting, listen.name_server)
    hosts |= {host_of(endpoint) for endpoint in endpoints if endpoint}
    far = [host for host in hosts if not is_loopback(host)]
    limit = "an address under which other machines know this node"
    if address.is_loopback and far:
        return warn(
            "settings.broker-ip",
            f"node.broker_ip = {node.broker_ip}",
            limit=limit,
            change="set node.broker_ip: RocketMQ's clients are told to find the node there, and it"
            " becomes a part of every message's id",
        )
    return ok("settings.broker-ip", node.broker_ip, limit=limit)


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
