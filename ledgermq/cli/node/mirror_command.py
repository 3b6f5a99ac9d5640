"""``ledgermq mirror``: copies of a group at other sites, and how far this one is.

``add``, ``list`` and ``remove`` ask the source; ``status`` asks nobody: it reads what the mirror on
this machine has told last. What is done with stopped stores is in ``mirror_promotion.py``. Exit
status: 0 done; 1 refused, or the command line; 2 there is no mirror on this machine.
"""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from ledgermq.cli.arguments import LateCommand, takes
from ledgermq.cli.node_verbs import asks
from ledgermq.cli.output import tell, time_text
from ledgermq.client.admin.broker_admins import ArchiveAdmin
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.broker_connection import connect_broker
from ledgermq.members.mirrors.mirror_figures import OwnMirror, mirror_of_mark, own_mirror
from ledgermq.members.mirrors.mirror_report import read_mirror_report
from ledgermq.model.config.amounts import size_text
from ledgermq.model.config.settings import ListenSection
from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings.settings_loading import load_settings
from ledgermq.rules.tables.archives import MIRROR_PREFIX, is_mirror_name

TOKEN_BYTES = 24


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``mirror`` and its verbs."""
    parser = subparsers.add_parser("mirror", help="copy a group to another site")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    add = verbs.add_parser(
        "add",
        help="let retention wait for a mirror, and say what both sites need",
        description="Asked of the source. From then on its log is kept for the mirror, within the "
        "bounds of retention.archive_wait_hours and archive_wait_below. Prints a line for the "
        "tokens of its members and the settings of the mirror.",
    )
    listing = verbs.add_parser("list", help="show what each mirror holds; asked of the source")
    remove = verbs.add_parser(
        "remove", help="let retention wait for a mirror no more; asked of the source"
    )
    for verb in (add, remove):
        takes(verb, "mirror NAME", "of the mirror, as site-b")
    asks(add, connect_broker, _add)
    asks(listing, connect_broker, _list)
    asks(remove, connect_broker, _remove)
    status = verbs.add_parser("status", help="show how far the mirror on this machine is")
    where = status.add_mutually_exclusive_group()
    takes(where, "--runtime-dir DIR", "listen.runtime_dir")
    takes(where, "--config FILE", "settings of the node")
    takes(status, "--json", "print JSON")
    status.set_defaults(func=_status)
    _add_promotion_verbs(verbs)


def _add_promotion_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``promote``, ``missing`` and ``rejoin`` to the verbs of ``mirror``."""
    promote = verbs.add_parser(
        "promote",
        help="make a group of the mirror on this machine, which does not run",
        description="Takes the mark of a mirror from the store, and begins the next group epoch. "
        "The node is stopped before, and started afterwards with settings that have no [mirror]. "
        "Says where the copy ends, and what is known to be missing.",
    )
    takes(promote, "--config FILE", "settings of the node", required=True)
    takes(promote, "--yes", "do not ask")
    takes(promote, "--json", "print JSON")
    promote.set_defaults(func=LateCommand("node.mirror_promotion", "promote"))
    missing = verbs.add_parser(
        "missing",
        help="list what the old group had stored and a promoted mirror lacks, queue by queue",
        description="Reads the store of a member of the old group, which does not run, from where "
        "the copy ended. Nothing is changed.",
    )
    takes(missing, "directory STORE", "storePathRootDir", type=Path)
    takes(
        missing,
        "--promoted FILE",
        "ledgermq/promoted of the promoted store, or a copy of it",
        required=True,
    )
    takes(missing, "--self-id SELF_ID", "whose DLedger log, where there are several")
    takes(missing, "--json", "print JSON")
    missing.set_defaults(func=LateCommand("node.mirror_promotion", "list_missing"))
    rejoin = verbs.add_parser(
        "rejoin",
        help="make a mirror of the new group out of the old one's store, which does not run",
        description="Lists what the store has behind the end of the copy, as missing does, moves it"
        " to ledgermq/set-aside, and marks the store a mirror's. Started with [mirror] it gets from"
        " the new group only what it lacks. Run again where it was killed.",
    )
    takes(rejoin, "--config FILE", "settings of the node", required=True)
    takes(
        rejoin,
        "--promoted FILE",
        "ledgermq/promoted of the new group's store, or a copy of it",
        required=True,
    )
    takes(rejoin, "--yes", "do not ask")
    takes(rejoin, "--json", "print JSON")
    rejoin.set_defaults(func=LateCommand("node.mirror_promotion", "rejoin"))


def _add(broker: Broker, arguments: argparse.Namespace) -> int:
    name = arguments.mirror
    if not is_mirror_name(name):
        raise ConfigError(
            "not a name of a mirror", mirror=name[:100], allowed="a few of a-z A-Z 0-9 - _ ."
        )
    admin = ArchiveAdmin(broker)
    if any(row.archive == MIRROR_PREFIX + name for row in admin.archives()):
        raise ConfigError("there is a mirror of that name: ledgermq mirror list", mirror=name)
    admin.commit(MIRROR_PREFIX + name, 0)
    token = secrets.token_hex(TOKEN_BYTES)
    document = {"mirror": name, "token": token}
    return tell(arguments, document, "\n".join(_what_to_do(name, token)))


def _what_to_do(name: str, token: str) -> Iterator[str]:
    yield f"The log is kept for mirror {name}. A line for http.tokens_file of each member here:"
    yield ""
    yield f"    {name} {token} mirror"
    yield ""
    yield "A file at the mirror that its account alone may read, as /etc/ledgermq/source-token:"
    yield ""
    yield f"    {token}"
    yield ""
    yield "Settings of the mirror, beside names and sizes as they are here, and an empty store:"
    yield ""
    yield "    [mirror]"
    yield '    sources = ["https://MEMBER:PORT", …]    # listen.http of the members here'
    yield '    token_file = "/etc/ledgermq/source-token"'


def _list(broker: Broker, arguments: argparse.Namespace) -> int:
    rows = [row for row in ArchiveAdmin(broker).archives() if mirror_of_mark(row.archive)]
    lines = [
        f"{mirror_of_mark(row.archive)}: holds the log up to {row.position:,},"
        f" {size_text(row.behind)} less than is here;"
        f" said so at {time_text(row.at_ms, unit='seconds')}"
        for row in rows
    ]
    mirrors = [
        {
            "mirror": mirror_of_mark(row.archive),
            "position": row.position,
            "behind": row.behind,
            "at_ms": row.at_ms,
        }
        for row in rows
    ]
    none = "there is no mirror: ledgermq mirror add NAME"
    return tell(arguments, {"mirrors": mirrors}, "\n".join(lines) or none)


def _remove(broker: Broker, arguments: argparse.Namespace) -> int:
    ArchiveAdmin(broker).remove(MIRROR_PREFIX + arguments.mirror)
    text = (
        f"{arguments.mirror}: is not waited for. Take its line out of http.tokens_file of each"
        " member: it may copy the log until then"
    )
    return tell(arguments, {"removed": arguments.mirror}, text)


def _status(arguments: argparse.Namespace) -> int:
    directory: Path | None = arguments.runtime_dir
    if directory is None:
        config: Path | None = arguments.config
        directory = (load_settings(config).listen if config else ListenSection()).runtime_dir
    report = read_mirror_report(RuntimePaths(directory).mirror)
    if report is None:
        raise StorageError("no mirror runs here", directory=str(directory))
    own = own_mirror(report, time.time_ns() // 1_000_000)
    return tell(arguments, {**own}, "\n".join(_described(own)))


def _described(report: OwnMirror) -> Iterator[str]:
    if not report["running"]:
        at = time_text(report["at_ms"], unit="seconds")
        yield f"it does not run; this is what it knew at {at}"
    does = "leads" if report["leads"] else "does not lead"
    deaf = "" if report["hears"] else ", and hears no leader: there may be more"
    member = f"{report['node']}, which {does}{deaf}"
    yield f"source      {report['source'] or 'none answers'}" + (
        f" ({member})" if report["source"] else ""
    )
    if report["trouble"]:
        yield f"trouble     {report['trouble']}"
    lag = "not known since its start" if report["lag_s"] is None else f"{report['lag_s']:.1f} s"
    yield (
        f"lag         {lag}: {report['lag_messages']:,} messages, {size_text(report['lag_bytes'])}"
    )
    silent = report["silent_s"]
    heard = "nobody since its start" if silent is None else f"{silent:.1f} s ago"
    yield f"heard       {heard}: the source had committed {report['source_position']:,}"
    yield f"held        {report['held']:,}, durably"
    yield f"received    {size_text(report['received_bytes'])} since its start"
    if report["mark_trouble"]:
        yield f"retention   of the source is not told: {report['mark_trouble']}"
    elif report["marked"] >= 0:
        yield f"retention   of the source was told {report['marked']:,}"
