"""First access to a new group or node: keys, certificates and users, a folder for each place.

    NODE/               for that node alone, to be copied to one place there
        keys/           ``raft.keys_dir``, where there are several nodes (``peer_keys``)
        clients.key     ``listen.curve_secret_file``, the same on all
        tls.pem tls.key certificate of the node, where certificates are wanted
        members.pem     those of all nodes, by which it knows the others, where there are several
        access.toml     settings that name all of these; ``ledgermq.toml`` where they are whole
    clients/            for the clients: each gets its own
        USER.keys       for ``tcp://…?keys=FILE``
        USER.secret     with which RocketMQ's clients sign
    certificates.pem    for RocketMQ's clients: those of all nodes
    users.json          users and rights, for a running node; no secret is in it

For hosts of a new group it is made with all of their settings.

A witness without messages, where no client comes, gets members' keys and settings alone.

Files have mode 0600, folders 0700. The folder appears when all is in it, or not at all.
"""

from __future__ import annotations

import glob
import ipaddress
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ledgermq.formats.records.host_address import PORT_MAX, UNPRIVILEGED_PORT_MIN
from ledgermq.model.config.host_texts import is_address
from ledgermq.model.config.settings import AckMode, ClusterState
from ledgermq.model.config.settings_file import tables, value_text
from ledgermq.model.config.settings_rules import RULES
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.model.ids import NodeId
from ledgermq.rules.access.access import User
from ledgermq.sessions.keys.client_keys import make_client_keys, make_node_key
from ledgermq.sessions.keys.peer_keys import USERS_FILE as SEALING_FILE
from ledgermq.sessions.keys.peer_keys import init_keys
from ledgermq.sessions.keys.secret_file import check_folder
from ledgermq.store.files.disk_sync import make_directories, sync_directory

USERS_FILE = "users.json"
CLIENTS, CERTIFICATES = "clients", "certificates.pem"
MEMBERS_CERTIFICATES = "members.pem"
SECRET_BYTES = 24
CERTIFICATE_DAYS = 825
ACCESS_SETTINGS, WHOLE_SETTINGS = "access.toml", "ledgermq.toml"

_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?")

_HEAD = """\
# Settings of {node.name} on {node.address}. What is not here has its default: man ledgermq.toml.
# After a change: ledgermq config check {file}
"""

_ANYWHERE = {False: "*", True: "[::]"}
"""All addresses of IPv4, and by whether those of IPv6 belong to it."""

Tables = Mapping[str, Mapping[str, object]]
"""Settings by table and key."""

HOST_COUNTS = (1, 3, 5)
"""Numbers of hosts that a group can be made of: with an even number of voters no more may be lost
than with one voter less."""

HOST_COUNTS_BESIDE_WITNESS = (2, 4)
"""Numbers of hosts beside a witness, with which they are an odd number of voters."""

FIRST_PORT = 10_920
PORTS = 5
"""Ports of a host in a row: for members, producers, consumers, and direct connections of members
and of their writers."""


class NewNode(NamedTuple):
    """A node, and the name or address at which clients reach it; an IPv6 one without brackets.

    Attributes:
        settings: what its settings say beside access; with it they are whole.
        is_witness: it holds no messages, and no client comes there.
    """

    name: NodeId
    address: str
    settings: Tables = MappingProxyType({})
    is_witness: bool = False

    @property
    def is_address(self) -> bool:
        """Whether clients reach it by an address, not by a name."""
        try:
            ipaddress.ip_address(self.address)
        except ValueError:
            return False
        return True

    @property
    def host(self) -> str:
        """The address as it stands before a port: one of IPv6 in brackets."""
        return f"[{self.address}]" if ":" in self.address else self.address


def read_host(text: str, *, setting: str) -> str:
    """A name in small letters, or an address without brackets.

    Raises:
        ConfigError: it is neither, or not that of one host.
    """
    bare = text.removeprefix("[").removesuffix("]") if text.startswith("[") else text
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        # No name ends in a number: a mistyped address.
        if not _NAME.fullmatch(text) or text.rpartition(".")[2].isdecimal():
            raise ConfigError(
                "not the name or the address of a host, as n0.example, 10.0.0.1 or fd00::1; ports"
                " are not said here (config init has --port)",
                value=text,
                setting=setting,
            ) from None
        return text.lower()
    if address.is_unspecified or address.is_multicast or not is_address(bare):
        raise ConfigError("not the address of one host", value=text, setting=setting)
    return str(address)


class ClientPorts(NamedTuple):
    """Ports at which clients come in; RocketMQ's at the last."""

    produce: int = 10_921
    consume: int = 10_922
    remoting: int = 10_911


class AccessWish(NamedTuple):
    """What is to be made.

    Attributes:
        users: rights by user, as ``acl_set`` takes them, without keys. Without any the ports are
            open to everybody, in clear.
        place: the folder of a node that its files are copied to.
        has_remoting: RocketMQ's clients come, too; over TLS where there are users.
    """

    nodes: Sequence[NewNode]
    users: Mapping[str, Mapping[str, object]]
    place: Path
    has_remoting: bool
    ports: ClientPorts = ClientPorts()

    @property
    def has_certificates(self) -> bool:
        """Whether nodes get certificates."""
        return self.has_remoting and bool(self.users)

    @property
    def hands_on(self) -> bool:
        """Whether nodes hand on to one another what came over TLS."""
        return self.has_certificates and len(self.serving) > 1

    @property
    def serving(self) -> Sequence[NewNode]:
        """Nodes that clients come to."""
        return [node for node in self.nodes if not node.is_witness]


_MAKING = ".making-"
"""Text behind the name of a folder that is not whole yet; a number drawn by chance follows."""


def make_first_access(folder: Path, wanted: AccessWish) -> None:
    """Make all of it below ``folder``, which is not there yet.

    Raises:
        ConfigError: something is there, a user's rights are none, or there is no ``openssl``.
        StorageError: the operating system refused.
    """
    for name, fields in wanted.users.items():
        User.read(name, fields)
    if folder.exists():
        raise ConfigError("keys are not overwritten: name another folder", folder=str(folder))
    try:
        making = _begun(folder)
    except OSError as error:
        raise _not_written(folder, error) from error
    try:
        _make(making, wanted)
        sync_directory(making)
        making.rename(folder)
        sync_directory(folder.parent)
    except OSError as error:
        raise _not_written(folder, error) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _begun(folder: Path) -> Path:
    """A new folder of ours, where ``folder`` is to be; what a killed run of ours has left goes.

    Raises:
        ConfigError: others may put another one in its place.
        OSError: the operating system refused.
    """
    make_directories(folder.parent)
    check_folder(folder.parent)
    prefix = f"{folder.name}{_MAKING}"
    for path in folder.parent.glob(f"{glob.escape(prefix)}*"):
        if path.lstat().st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))


def _not_written(folder: Path, error: OSError) -> StorageError:
    return StorageError(f"keys not written: {error.strerror}", errno=error.errno, path=str(folder))


def read_first_users(folder: Path) -> dict[str, dict[str, object]]:
    """The users that were made, with keys and secrets, as ``acl_set`` takes them.

    Raises:
        ConfigError: the folder is not one that ``make_first_access`` has made.
    """
    try:
        users: dict[str, dict[str, object]] = json.loads((folder / USERS_FILE).read_text())
        for name, fields in users.items():
            fields["secretKey"] = (folder / CLIENTS / f"{name}.secret").read_text().strip()
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            "not a folder that `ledgermq access init` has made",
            folder=str(folder),
            reason=str(error),
        ) from error
    return users


def _make(making: Path, wanted: AccessWish) -> None:
    names = [node.name for node in wanted.nodes]
    if len(names) > 1:
        for folder in init_keys(making / "members", names):
            target = making / folder.name
            make_directories(target, mode=0o700)
            folder.rename(target / "keys")
        (making / "members").rmdir()
    for node in wanted.nodes:
        target = making / node.name
        make_directories(target, mode=0o700)
        if wanted.has_certificates and not node.is_witness:
            _make_certificate(target, node)
        if node.is_witness:
            # It has no users whose secrets it would open.
            (target / "keys" / SEALING_FILE).unlink()
        name = WHOLE_SETTINGS if node.settings else ACCESS_SETTINGS
        # No secret, and also for those who only look.
        mode = 0o644 if node.settings else 0o600
        _write(target / name, _settings(node, wanted).encode(), mode=mode)
    if wanted.has_certificates:
        made = b"".join((making / node.name / "tls.pem").read_bytes() for node in wanted.serving)
        _write(making / CERTIFICATES, made)
        for node in wanted.serving if wanted.hands_on else ():
            _write(making / node.name / MEMBERS_CERTIFICATES, made)
    if wanted.users:
        _make_users(making, wanted)


def _make_users(making: Path, wanted: AccessWish) -> None:
    """Keys by which clients and nodes know one another, and the list of users."""
    first, *others = [making / node.name / "clients.key" for node in wanted.serving]
    server = make_node_key(first)
    for other in others:
        _write(other, first.read_bytes())
    clients = making / CLIENTS
    make_directories(clients, mode=0o700)
    users: dict[str, dict[str, object]] = {}
    for name, fields in wanted.users.items():
        public = make_client_keys(clients / f"{name}.keys", server=server)
        _write(clients / f"{name}.secret", secrets.token_urlsafe(SECRET_BYTES).encode() + b"\n")
        users[name] = {**fields, "publicKeys": [public]}
    _write(making / USERS_FILE, json.dumps(users, indent=1).encode())


def _settings(node: NewNode, wanted: AccessWish) -> str:
    """The settings of a node, in the order of ``settings.md``."""
    told: dict[str, dict[str, object]] = {
        table: dict(keys) for table, keys in node.settings.items()
    }
    for table, keys in _access_tables(node, wanted).items():
        told.setdefault(table, {}).update(keys)
    parts = [
        "\n".join(
            [f"[{table}]", *(f"{key} = {value_text(one)}" for key, one in told[table].items())]
        )
        for table in tables()
        if table in told
    ]
    if node.settings:
        parts.insert(0, _HEAD.format(node=node, file=wanted.place / WHOLE_SETTINGS).rstrip())
    return "\n\n".join(parts) + "\n"


def _is_ipv6(node: NewNode) -> bool:
    """Whether the node's name is known to mean an address of IPv6."""
    return ":" in str(node.settings.get("node", {}).get("broker_ip", ""))


def _access_tables(node: NewNode, wanted: AccessWish) -> Tables:
    # A program cannot listen at a name, and a name may stand for several addresses.
    host = node.host if node.is_address else _ANYWHERE[_is_ipv6(node)]
    place, ports = wanted.place, wanted.ports
    if node.is_witness:
        return {"raft": {"keys_dir": place / "keys"}}
    listen: dict[str, object] = {
        "produce": f"tcp://{host}:{ports.produce}",
        "consume": f"tcp://{host}:{ports.consume}",
    }
    told: dict[str, dict[str, object]] = {"listen": listen}
    if len(wanted.nodes) > 1:
        told["raft"] = {"keys_dir": place / "keys"}
    if wanted.has_remoting:
        listen["remoting"] = f"{host}:{ports.remoting}"
    if not wanted.users:
        listen["trusted_network"] = True
        return told
    listen["curve_secret_file"] = place / "clients.key"
    told["access"] = {"enabled": True}
    if wanted.has_certificates:
        told["remoting"] = {
            "tls_mode": "enforcing",
            "tls_certificate_file": place / "tls.pem",
            "tls_key_file": place / "tls.key",
        }
        if wanted.hands_on:
            told["remoting"]["members_ca_file"] = place / MEMBERS_CERTIFICATES
    return told


def _make_certificate(target: Path, node: NewNode) -> None:
    """A certificate that the node signs itself: clients have those of all nodes in one file.

    Raises:
        ConfigError: there is no ``openssl``, or it refused.
    """
    kind = "IP" if node.is_address else "DNS"
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-days", str(CERTIFICATE_DAYS), "-subj", f"/CN={node.name}",
        "-addext", f"subjectAltName={kind}:{node.address}",
        "-keyout", str(target / "tls.key"), "-out", str(target / "tls.pem"),
    ]  # fmt: skip
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, umask=0o077)  # noqa: S603 - openssl, with checked words, without a shell
    except FileNotFoundError as error:
        raise ConfigError("certificates are made with openssl, which is not installed") from error
    except subprocess.CalledProcessError as error:
        raise ConfigError(
            "openssl made no certificate", address=node.address, reason=error.stderr[-200:]
        ) from error


def _write(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        # Whatever the umask of who types it.
        os.fchmod(file.fileno(), mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


class GroupWish(NamedTuple):
    """What an operator wants.

    Attributes:
        hosts: names or addresses at which members and clients reach the hosts.
        name: of the group, and of the broker that it is to RocketMQ's clients.
        first_port: members'; producers', consumers' and that of members' direct connections are
            the three behind it.
        remoting_port: RocketMQ's clients'; None without them.
        data: the store's directory on each host.
        users: rights by user; without any the ports are open.
        admin_over_clients: admins may change topics, groups and users from anywhere.
        place: the folder of each host that its files are copied to.
        witness: one host more, which votes and holds no messages; None without one.
    """

    hosts: Sequence[str]
    name: str
    first_port: int
    remoting_port: int | None
    data: Path
    durability: AckMode
    users: Mapping[str, Mapping[str, object]]
    admin_over_clients: bool
    place: Path
    witness: str | None = None


class GroupPlan(NamedTuple):
    """What is to be made, and what an operator should know of it."""

    access: AccessWish
    warnings: tuple[str, ...]


def plan_group(wanted: GroupWish) -> GroupPlan:
    """Names, ports and settings of the members; nothing is made yet.

    Asks for the addresses of hosts that are given by name.

    Raises:
        ConfigError: it could not be a group, or not at these ports.
    """
    hosts = _hosts(wanted.hosts, wanted.witness)
    for key, value, option in (
        ("node.broker_name", wanted.name, "--name"),
        ("store.path_root_dir", wanted.data, "--data"),
    ):
        if not RULES[key].takes(value):
            raise ConfigError(f"must be {RULES[key].allowed}", value=str(value), setting=option)
    _check_ports(wanted)
    if wanted.admin_over_clients and not wanted.users:
        raise ConfigError(
            "without users everybody who reaches the ports would be an admin",
            setting="--admin-over-clients",
        )
    members = [
        NewNode(NodeId(f"n{number}"), host, is_witness=number == len(wanted.hosts))
        for number, host in enumerate(hosts)
    ]
    warnings: list[str] = []
    known: dict[str, str] = {}
    nodes = []
    for member in members:
        address = member.address if member.is_address else _resolved(member.address)
        if address is None and not member.is_witness:
            warnings.append(
                f"{member.address} has no address here that others could use: set node.broker_ip in"
                f" the settings of {member.name}"
            )
        elif address is not None and address in known:
            warnings.append(f"{member.address} is {known[address]} by its address here, {address}")
        elif address is not None:
            known[address] = member.address
        nodes.append(member._replace(settings=_member_settings(member, members, wanted, address)))
    ports = ClientPorts(
        wanted.first_port + 1, wanted.first_port + 2, wanted.remoting_port or ClientPorts().remoting
    )
    has_remoting = wanted.remoting_port is not None
    access = AccessWish(nodes, wanted.users, wanted.place, has_remoting, ports)
    return GroupPlan(access, tuple(warnings))


def _hosts(given: Sequence[str], witness: str | None) -> list[str]:
    """Hosts in one spelling, that of the witness last."""
    hosts: list[str] = []
    for text in (*given, *([] if witness is None else [witness])):
        host = read_host(text, setting="HOST")
        if host in hosts:
            raise ConfigError("a host stands twice: each is one member", value=text, setting="HOST")
        hosts.append(host)
    _check_count(len(given), has_witness=witness is not None)
    here = [host for host in hosts if _is_loopback(host)]
    if here and len(here) < len(hosts):
        raise ConfigError(
            "other hosts do not reach this one by such an address", value=here[0], setting="HOST"
        )
    return hosts


def _check_count(hosts: int, *, has_witness: bool) -> None:
    counts = HOST_COUNTS_BESIDE_WITNESS if has_witness else HOST_COUNTS
    if hosts in counts:
        return
    told = ", ".join(map(str, counts))
    if has_witness:
        reason = f"beside a witness without messages a group has one of {told} hosts"
    else:
        reason = (
            f"a group has an odd number of hosts, and here one of {told}: one more than an odd"
            " number survives no more losses; a third vote for two sites is --witness"
        )
    raise ConfigError(reason, value=hosts, setting="HOST")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_ports(wanted: GroupWish) -> None:
    own = range(wanted.first_port, wanted.first_port + PORTS)
    for ports, option in ((own, "--port"), ((wanted.remoting_port,), "--rocketmq-port")):
        for port in ports:
            if port is not None and not UNPRIVILEGED_PORT_MIN <= port <= PORT_MAX:
                raise ConfigError(
                    f"ports are {UNPRIVILEGED_PORT_MIN} to {PORT_MAX}", value=port, setting=option
                )
    if wanted.remoting_port in own:
        raise ConfigError(
            f"members, producers and consumers have {own[0]} to {own[-1]} (--port)",
            value=wanted.remoting_port,
            setting="--rocketmq-port",
        )


def _resolved(name: str) -> str | None:
    """The first address of a name that other hosts could use."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    # Debian's /etc/hosts has the machine's own name as 127.0.1.1.
    addresses = sorted((str(entry[4][0]) for entry in found), key=lambda one: ":" in one)
    is_here = name == "localhost"
    usable = (one for one in addresses if is_address(one) and _is_loopback(one) == is_here)
    return next(usable, None)


def _member_settings(
    member: NewNode, members: Sequence[NewNode], wanted: GroupWish, address: str | None
) -> Tables:
    node: dict[str, object] = {
        "broker_name": wanted.name,
        "group": wanted.name,
        "self_id": str(member.name),
    }
    if len(members) > 1:
        # The others begin without a witness, which they take in when they are a group.
        known = [one for one in members if member.is_witness or not one.is_witness]
        node["peers"] = tuple(f"{one.name}-{one.host}:{wanted.first_port}" for one in known)
    if member.is_witness:
        node |= {"initial_cluster_state": ClusterState.EXISTING, "witness": True}
    elif address is not None:
        node["broker_ip"] = address
    if wanted.remoting_port is not None and not member.is_witness:
        node["listen_port"] = wanted.remoting_port
    told: dict[str, dict[str, object]] = {
        "node": node,
        "store": {"path_root_dir": wanted.data},
        "ack": {"mode": wanted.durability},
    }
    if len(members) > 1:
        told["raft"] = {"direct_port": wanted.first_port + PORTS - 2}
    if wanted.admin_over_clients and not member.is_witness:
        told["access"] = {"admin_over_clients": True}
    return told
