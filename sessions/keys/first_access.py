"""First access to a new group or node: keys, certificates and users, a folder for each place.

    NODE/               for that node alone, to be copied to one place there
        keys/           ``raft.keys_dir``, where there are several nodes (``peer_keys``)
        clients.key     ``listen.curve_secret_file``, the same on all
        tls.pem tls.key certificate of the node, where certificates are wanted
        access.toml     settings that name all of these
    clients/            for the clients: each gets its own
        USER.keys       for ``tcp://…?keys=FILE``
        USER.secret     with which RocketMQ's clients sign
    certificates.pem    for RocketMQ's clients: those of all nodes
    users.json          users and rights, for a running node; no secret is in it

Files have mode 0600, folders 0700. The folder appears when all is in it, or not at all.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.model.ids import NodeId
from ledgermq.rules.access.access import User
from ledgermq.sessions.keys.client_keys import make_client_keys, make_node_key
from ledgermq.sessions.keys.peer_keys import init_keys
from ledgermq.store.files.disk_sync import make_directories, sync_directory

USERS_FILE = "users.json"
CLIENTS, CERTIFICATES = "clients", "certificates.pem"
SECRET_BYTES = 24
CERTIFICATE_DAYS = 825
PRODUCE_PORT, CONSUME_PORT, REMOTING_PORT = 10_921, 10_922, 10_911


class NewNode(NamedTuple):
    """A node, and the address at which clients reach it."""

    name: NodeId
    address: str


class AccessWish(NamedTuple):
    """What is to be made.

    Attributes:
        users: rights by user, as ``acl_set`` takes them, without keys.
        place: the folder of a node that its files are copied to.
        has_certificates: RocketMQ's clients come, too, over TLS.
    """

    nodes: Sequence[NewNode]
    users: Mapping[str, Mapping[str, object]]
    place: Path
    has_certificates: bool


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
    making = folder.with_name(f"{folder.name}.making")
    try:
        if making.exists():
            shutil.rmtree(making)
        make_directories(making, mode=0o700)
        _make(making, wanted)
        sync_directory(making)
        making.rename(folder)
        sync_directory(folder.parent)
    except OSError as error:
        raise StorageError(
            f"keys not written: {error.strerror}", errno=error.errno, path=str(folder)
        ) from error
    finally:
        shutil.rmtree(making, ignore_errors=True)


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
    first = making / names[0]
    make_directories(first, mode=0o700)
    server = make_node_key(first / "clients.key")
    key = (first / "clients.key").read_bytes()
    for node in wanted.nodes:
        target = making / node.name
        make_directories(target, mode=0o700)
        if target != first:
            _write(target / "clients.key", key)
        if wanted.has_certificates:
            _make_certificate(target, node)
        _write(target / "access.toml", _settings(node, wanted).encode())
    if wanted.has_certificates:
        made = [(making / name / "tls.pem").read_bytes() for name in names]
        _write(making / CERTIFICATES, b"".join(made))
    clients = making / CLIENTS
    make_directories(clients, mode=0o700)
    users: dict[str, dict[str, object]] = {}
    for name, fields in wanted.users.items():
        public = make_client_keys(clients / f"{name}.keys", server=server)
        _write(clients / f"{name}.secret", secrets.token_urlsafe(SECRET_BYTES).encode() + b"\n")
        users[name] = {**fields, "publicKeys": [public]}
    _write(making / USERS_FILE, json.dumps(users, indent=1).encode())


def _settings(node: NewNode, wanted: AccessWish) -> str:
    place = wanted.place
    tables: dict[str, dict[str, object]] = {
        "listen": {
            "produce": f"tcp://{node.address}:{PRODUCE_PORT}",
            "consume": f"tcp://{node.address}:{CONSUME_PORT}",
            "curve_secret_file": str(place / "clients.key"),
        },
        "access": {"enabled": True},
    }
    if len(wanted.nodes) > 1:
        tables["raft"] = {"keys_dir": str(place / "keys")}
    if wanted.has_certificates:
        tables["listen"]["remoting"] = f"{node.address}:{REMOTING_PORT}"
        tables["remoting"] = {
            "tls_mode": "enforcing",
            "tls_certificate_file": str(place / "tls.pem"),
            "tls_key_file": str(place / "tls.key"),
        }
    # What JSON writes of strings and booleans is TOML, too.
    parts = [
        "\n".join([f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())])
        for table, keys in tables.items()
    ]
    return "\n\n".join(parts) + "\n"


def _make_certificate(target: Path, node: NewNode) -> None:
    """A certificate that the node signs itself: clients have those of all nodes in one file.

    Raises:
        ConfigError: there is no ``openssl``, or it refused.
    """
    is_number = all(letter in "0123456789abcdefABCDEF.:" for letter in node.address)
    kind = "IP" if is_number else "DNS"
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


def _write(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
