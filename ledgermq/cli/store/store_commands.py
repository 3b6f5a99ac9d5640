"""``ledgermq store``: read a store directory, of a stopped node or of a copy, without any settings.

``dump`` and ``query`` change nothing, and take no lock: a running node's store can be read too, and
shows what it held when it was opened. What changes a store has a module of its own.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ledgermq.cli.arguments import LateCommand, add_size_options, takes


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``store`` with its verbs."""
    parser = subparsers.add_parser("store", help="read and convert a store directory")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    dump = verbs.add_parser("dump", help="print all messages, queue by queue")
    takes(dump, "--topic TOPIC", "of this topic only")
    takes(dump, "--queue N", "of queues with this number only")
    dump.set_defaults(func=LateCommand("store.store_reading", "dump_queue"))

    query = verbs.add_parser(
        "query",
        help="find messages by key, or a queue offset by time",
        description="With --key: the newest messages (64 at most) that have it as a key or as "
        "their unique id. With --time: the offset of the message of --queue nearest to it.",
    )
    takes(query, "--topic TOPIC", required=True)
    what = query.add_mutually_exclusive_group(required=True)
    takes(what, "--key KEY", "a key, or a unique message id")
    takes(what, "--time MS", "a store time, epoch milliseconds")
    takes(query, "--queue N", "queue number, with --time")
    takes(
        query,
        "--hash-slots N",
        "maxHashSlotNum of the index files, where it cannot be told from them",
    )
    query.set_defaults(func=LateCommand("store.store_reading", "query_messages"))

    for verb in (dump, query):
        _add_store(verb)
        _add_json(verb, " a line")

    check = _store_verb(
        verbs, "check", "compare everything in a store with itself; changes nothing", _CHECK
    )
    _add_json(check)
    takes(
        check,
        "--jobs N",
        "processes that read the log (as many as there are processors)",
        default=len(os.sched_getaffinity(0)),
    )
    takes(check, "--log-file-size BYTES", "mappedFileSizeCommitLog")
    add_size_options(check)
    check.set_defaults(func=LateCommand("store.store_check_command", "run"))

    accept = _store_verb(
        verbs, "accept-loss", "go on without what a damaged log lost", _ACCEPT_LOSS
    )
    takes(accept, "--yes", "do it")
    _add_json(accept)
    accept.set_defaults(func=LateCommand("store.store_accept_loss_command", "run"))

    rebuild = _store_verb(verbs, "rebuild", "build queues and index again from the log", _REBUILD)
    _add_json(rebuild)
    add_size_options(rebuild)
    rebuild.set_defaults(func=LateCommand("store.store_rebuild_command", "run"))

    install = _store_verb(
        verbs, "install-derived",
        "take over queues and index that ledgermq spark rebuild has built", _INSTALL_DERIVED,
    )  # fmt: skip
    takes(
        install, "--from DIR", "where they were built (DIRECTORY/ledgermq/derived)", dest="folder"
    )
    _add_json(install)
    install.set_defaults(func=LateCommand("store.store_rebuild_command", "install"))

    _register_upgrade(verbs)

    downgrade = _store_verb(
        verbs, "downgrade", "make a plain store of a group's member", _DOWNGRADE
    )
    takes(downgrade, "--dry-run", "say what would be done")
    takes(downgrade, "--undo", "give the DLedger store back")
    takes(downgrade, "--finish", "delete the DLedger log: there is no way back")
    _add_json(downgrade)
    add_size_options(downgrade)
    downgrade.set_defaults(func=LateCommand("store.store_downgrade_command", "run"))


def _store_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, about: str
) -> argparse.ArgumentParser:
    """A verb about one store."""
    verb = verbs.add_parser(name, help=text, description=about)
    _add_store(verb)
    return verb


def _add_store(verb: argparse.ArgumentParser) -> None:
    takes(verb, "directory", "storePathRootDir", type=Path)
    takes(verb, "--self-id SELF_ID", "whose DLedger log, where there are several")


def _add_json(verb: argparse.ArgumentParser, each: str = "") -> None:
    takes(verb, "--json", f"print one JSON object{each}")


_CHECK = (
    "Reads the whole log, compares its records with their CRCs, and index items, queues, keys and "
    "checkpoints with the records. Of a running node, or a copy of one, what lies behind the "
    "committed end is not judged. Exit status: 0 nothing is wrong; 4 files that are made from the "
    "log differ from it; 5 the log is damaged."
)

_ACCEPT_LOSS = """\
Say what the damaged log of a stopped store has lost; with --yes cut the log before its damage, and
forget what it once held. A member of a group needs this only when its group finds no leader without
it: elsewhere it fetches what it lost. What is cut cannot be had back: copy the directory first.
"""

_REBUILD = """\
Build consumequeue/, index/ and the checkpoints again from the log of a store that nobody has open,
as the dispatcher builds them, byte for byte. What was there is kept in ledgermq/set-aside/. The log
itself is not changed. Killed in the middle, it is run again; a node that is started instead builds
the same.
"""

_INSTALL_DERIVED = """\
Put consumequeue/, index/ and the checkpoints that ledgermq spark rebuild has built in place of
those of a store that nobody has open. They must be of this log; what came to the log since is
dispatched by the next start. What was there is kept in ledgermq/set-aside/. Killed in the middle,
a node that is started builds everything from the log.
"""

_UPGRADE = """\
Do what RocketMQ's broker does at its first start with DLedger: recover the old log, fill its last
file with a blank, and begin a DLedger log behind it. Old messages stay where they are. All members
of the group must have the same old log: have each write a manifest, and compare them. A crash in
the middle is gone on with by the same command, or undone.
"""


def _register_upgrade(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "upgrade", help="make a plain store that of a group's member", description=_UPGRADE
    )
    takes(parser, "directory", "storePathRootDir", type=Path)
    takes(parser, "--group GROUP", "dLegerGroup, node.group: the group's name")
    takes(parser, "--self-id SELF_ID", "dLegerSelfId, node.self_id: which member, as n0")
    takes(parser, "--dry-run", "verify the old log, change nothing")
    takes(parser, "--manifest FILE", "write what the old log holds, as digests")
    takes(
        parser,
        "--compare FILE",
        "go on only if the old log is that of these manifests, of the other members",
        nargs="+",
    )
    takes(parser, "--undo", "give the plain store back")
    takes(parser, "--finish", "delete what an undo would need: there is no way back")
    takes(parser, "--json", "print one JSON object")
    add_size_options(parser)
    parser.set_defaults(func=LateCommand("store.store_upgrade_command", "run"))


_DOWNGRADE = """\
Write the messages of a member's log as a plain CommitLog, with queues and index, and put it in the
place of the DLedger log, which is kept until --finish. Messages keep their queue offsets. Take the
member whose last entry has the highest term and index (--dry-run tells): it has all that was
acknowledged. A crash in the middle is gone on with by the same command, or undone.
"""
