"""``ledgermq config``: settings are made, checked, shown, and translated from RocketMQ's."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from ledgermq.cli.arguments import takes
from ledgermq.cli.output import tell
from ledgermq.cli.setup.access_command import add_further_users, add_place, first_users
from ledgermq.model.config.broker_conf import Untranslated, translate_broker_conf, write_translation
from ledgermq.model.config.settings import AckMode, LogKind, Settings, StoreSection
from ledgermq.model.config.settings_change import cluster_fingerprint
from ledgermq.model.config.settings_file import write_settings
from ledgermq.model.errors import StorageError
from ledgermq.process.settings.settings_loading import load_settings, read_properties_text
from ledgermq.sessions.keys.first_access import (
    CERTIFICATES,
    CLIENTS,
    FIRST_PORT,
    MEMBERS_CERTIFICATES,
    WHOLE_SETTINGS,
    AccessWish,
    ClientPorts,
    GroupWish,
    NewNode,
    make_first_access,
    plan_group,
)


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``config`` with its verbs."""
    parser = subparsers.add_parser("config", help="make, check, show and translate settings")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    add_init(verbs)

    check = verbs.add_parser("check", help="say what is wrong with a settings file, all at once")
    takes(check, "file", "settings, TOML", type=Path)
    check.set_defaults(func=_check)

    show = verbs.add_parser("show", help="print all settings as they are in force")
    takes(show, "file", "settings, TOML; without: the defaults", type=Path, nargs="?")
    show.set_defaults(func=_show)

    translate = verbs.add_parser(
        "from-rocketmq",
        help="translate a RocketMQ broker.conf",
        description="Prints settings for the same store on stdout; on stderr, every key that has "
        "no equal, with its value and the reason.",
    )
    takes(translate, "file", "a broker.conf of RocketMQ 4.9", type=Path)
    translate.set_defaults(func=_from_rocketmq)

    for verb in (check, show, translate):
        takes(verb, "--json", "print JSON")


def _check(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    fingerprint = cluster_fingerprint(load_settings(path))
    document = {"file": str(path), "ok": True, "cluster_fingerprint": fingerprint}
    return tell(arguments, document, f"{path}: ok, cluster fingerprint {fingerprint}")


def _show(arguments: argparse.Namespace) -> int:
    path: Path | None = arguments.file
    settings = Settings() if path is None else load_settings(path)
    print(_as_json(settings) if arguments.json else write_settings(settings).rstrip())
    return 0


def _from_rocketmq(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    translation = translate_broker_conf(read_properties_text(path), name=str(path))
    if arguments.json:
        left = [entry._asdict() for entry in translation.untranslated]
        settings = dataclasses.asdict(translation.settings)
        print(json.dumps({"settings": settings, "untranslated": left}, default=str, indent=2))
        _tell_origin(translation.settings)
        return 0
    print(write_translation(translation, name=path.name).rstrip())
    for entry in translation.untranslated:
        print(_remark(path, entry), file=sys.stderr)
    _tell_origin(translation.settings)
    return 0


def _tell_origin(settings: Settings) -> None:
    """Say of a store of RocketMQ 5 that is there what a node would lose of it."""
    # Imported late: a translation needs none of the libraries of a store.
    from ledgermq.store.origin import Product, origin_of

    root = settings.store.path_root_dir
    is_dledger = settings.store.log is LogKind.DLEDGER
    try:
        origin = origin_of(root, self_id=settings.node.self_id if is_dledger else None)
    except StorageError as error:
        print(f"{root}: whose store it is cannot be told: {error}", file=sys.stderr)
        return
    if origin.product is Product.ROCKETMQ_5:
        uses = "; ".join(use.text for use in origin.refused) or "nothing of it would be lost"
        print(f"{root}: a store of RocketMQ 5: {uses}", file=sys.stderr)


def _remark(path: Path, entry: Untranslated) -> str:
    if entry.line == 0:
        return f"{path}: {entry.key} is not set (RocketMQ's default: {entry.value}): {entry.why}"
    return f"{path}:{entry.line}: {entry.key} = {entry.value}: {entry.why}"


def _as_json(settings: Settings) -> str:
    return json.dumps(dataclasses.asdict(settings), default=str, indent=2)


ACCOUNT = "ledgermq"
"""What the package has the service run as."""

_DATA = StoreSection().path_root_dir
_PORT = ClientPorts().remoting


def add_init(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``init`` to the verbs of ``config``."""
    init = verbs.add_parser(
        "init",
        help="make settings, keys, certificates and users of a group of one, three or five hosts,"
        " or of two or four and a witness",
        description="Makes a folder with all that each host needs in /etc/ledgermq, and says what"
        " to copy where. Nothing is sent anywhere, and nothing overwritten.",
    )
    takes(init, "hosts HOST", "name or address by which all others reach it", nargs="+")
    takes(
        init,
        "--witness HOST",
        "one host more, which votes and holds no messages: a third vote for two sites, beside"
        " two hosts or four",
    )
    takes(
        init,
        "--output DIR",
        "what is made (default: ./%(default)s)",
        default=Path("ledgermq-setup"),
    )
    takes(init, "--name NAME", "of group and broker (default: %(default)s)", default="broker-a")
    takes(
        init,
        "--port N",
        "members' port; producers have the next one, consumers the one behind it, and members"
        " a fourth and a fifth for direct ones (default: %(default)s)",
        default=FIRST_PORT,
    )
    remoting = init.add_mutually_exclusive_group()
    takes(
        remoting,
        "--rocketmq-port N",
        "for RocketMQ's clients (default: %(default)s)",
        default=_PORT,
    )
    takes(remoting, "--no-rocketmq", "they do not come: no port, no certificates")
    takes(
        init,
        "--data DIR",
        "the store's directory on each host (default: %(default)s)",
        default=_DATA,
    )
    takes(
        init,
        "--durability",
        "when a message is acknowledged (default: %(default)s)",
        type=AckMode,
        choices=list(AckMode),
        default=AckMode.MAJORITY_FSYNC,
    )
    _add_users(init)
    add_place(init)
    takes(init, "--json", "print JSON")
    init.set_defaults(func=_init)


def _add_users(init: argparse.ArgumentParser) -> None:
    init.add_argument(
        "--users",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="only users come in, over TLS or with keys (default); with --no-users everybody does"
        " who reaches the ports, in clear",
    )
    takes(init, "--admin USER", "may do everything (default: %(default)s)", default="admin")
    add_further_users(init)
    takes(
        init,
        "--admin-over-clients",
        "admins may change topics, groups and users from anywhere, as mqadmin does",
    )


def _init(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.output.absolute()
    plan = plan_group(
        GroupWish(
            hosts=arguments.hosts,
            name=arguments.name,
            first_port=arguments.port,
            remoting_port=None if arguments.no_rocketmq else arguments.rocketmq_port,
            data=arguments.data,
            durability=arguments.durability,
            users=first_users(arguments.admin, arguments.user) if arguments.users else {},
            admin_over_clients=arguments.admin_over_clients,
            place=arguments.place,
            witness=arguments.witness,
        )
    )
    make_first_access(folder, plan.access)
    for warning in plan.warnings:
        print(f"ledgermq: warning: {warning}", file=sys.stderr)
    document = {
        "folder": str(folder),
        "hosts": {node.name: node.address for node in plan.access.nodes},
        "users": sorted(plan.access.users),
        "warnings": plan.warnings,
    }
    return tell(arguments, document, "\n".join(_next_steps(folder, arguments, plan.access)))


def _next_steps(folder: Path, arguments: argparse.Namespace, made: AccessWish) -> Iterator[str]:
    """What to type next: fifteen lines at most, also for five hosts; two more with a witness."""
    place, quoted, data = made.place, shlex.quote(str(folder)), arguments.data
    members = ", ".join(
        f"{node.name} {node.address}{' (witness)' if node.is_witness else ''}"
        for node in made.nodes
    )
    yield f"{folder}: settings, keys, certificates of {members}"
    yield "1. as root, to each host what is its own, and to no other:"
    for node in made.nodes:
        copy, target = ("cp", "") if _is_here(node) else ("scp", f"{node.host}:")
        yield f"   {copy} -r {quoted}/{node.name}/* {target}{shlex.quote(str(place))}/"
    yield "2. on each host, with an empty store:"
    yield from _owners(made)
    if data != _DATA:
        yield f"   systemctl edit {ACCOUNT}, with [Service] and ReadWritePaths={data}"
    yield f"   systemctl unmask {ACCOUNT}; systemctl enable --now --no-block {ACCOUNT}"
    settings = shlex.quote(str(place / WHOLE_SETTINGS))
    yield f"   ledgermq status --config {settings} --wait-ready 60"
    if made.users:
        yield f"3. here, or where another host is said to lead: ledgermq access apply {quoted}"
    for node in made.nodes:
        if node.is_witness:
            yield (
                f"{4 if made.users else 3}. there, too: ledgermq raft add {node.name}"
                f" {node.host}:{arguments.port} --witness --without-bodies --config {settings}"
            )
    if made.has_remoting:
        ports = ";".join(f"{node.host}:{made.ports.remoting}" for node in made.serving)
        yield f"RocketMQ's clients have as name servers {ports}"
    if made.users:
        file = f", {CERTIFICATES}" if made.has_certificates else ""
        yield f"Keys and secrets of users are in {folder / CLIENTS}{file}; then remove {folder}"


def _owners(made: AccessWish) -> Iterator[str]:
    """What the account of the service is to own, where it was copied."""
    keys = ["keys"] if len(made.nodes) > 1 else []
    others = ["clients.key"] if made.users else []
    others += ["tls.key", "tls.pem"] if made.has_certificates else []
    others += [MEMBERS_CERTIFICATES] if made.hands_on else []
    witness = next((f"  # not on {one.name}" for one in made.nodes if one.is_witness), "")
    for names, where in ((keys, ""), (others, witness)) if witness else ((keys + others, ""),):
        paths = " ".join(shlex.quote(str(made.place / name)) for name in names)
        if paths:
            yield f"   chown -R {ACCOUNT}: {paths}{where}"


def _is_here(node: NewNode) -> bool:
    """Whether this machine has the address: packets to it would come from itself."""
    if not node.is_address:
        return node.address == "localhost"
    family = socket.AF_INET6 if ":" in node.address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the kernel looks for the way alone.
            probe.connect((node.address, 9))
        except OSError:
            return False
        return str(probe.getsockname()[0]) == node.address
