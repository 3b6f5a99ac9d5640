"""``ledgermq understudy``: a folder that follows a running RocketMQ master, and takes its place.

``add`` looks at the master and prepares the folder, ``run`` follows until it is told to stop,
``show`` reads what ``run`` has told last, and ``promote`` makes the folder a node's store.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.late_command import LateCommand

RATE_DEFAULT_MIB = 128


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``understudy`` with its verbs."""
    parser = subparsers.add_parser(
        "understudy", help="follow a running RocketMQ master, and take its place"
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    add = verbs.add_parser(
        "add",
        help="look at a master, and prepare an empty folder that is to follow it",
        description="Asks the master for its settings; nothing is changed there. Of a set"
        " with a controller any broker will do; a broker of a DLedger group and another slave are"
        " refused, each by its name.",
    )
    add.add_argument("master", metavar="HOST:PORT", help="where it waits for slaves (haListenPort)")
    add.add_argument(
        "--remoting", required=True, metavar="HOST:PORT", help="of its clients (listenPort)"
    )
    add.set_defaults(func=LateCommand("node.understudies", "add"))

    run = verbs.add_parser(
        "run",
        help="follow the master until told to stop (SIGTERM)",
        description="What is received is synced before the master is told of it. At its end it says"
        " how far it came. Exit status 1: the master's log is another one, or the master cannot be"
        " followed.",
    )
    run.add_argument(
        "--rate",
        type=int,
        default=RATE_DEFAULT_MIB,
        metavar="MIB",
        help=f"most MiB a second that are taken from the master (default: {RATE_DEFAULT_MIB})",
    )
    run.set_defaults(func=LateCommand("node.understudies", "run"))

    show = verbs.add_parser("show", help="show how far it is, and what is wrong")
    show.add_argument(
        "--metrics",
        action="store_true",
        help="print it as a file for the textfile collector of Prometheus' node exporter",
    )
    show.set_defaults(func=LateCommand("node.understudies", "show"))

    promote = verbs.add_parser(
        "promote",
        help="make a node's store of the folder, when the master and run have ended",
        description="Builds what is missing of queues and index, and writes settings for the node."
        " Killed at any moment, it is run again. The master must not be started any more.",
    )
    promote.add_argument(
        "--settings", type=Path, required=True, metavar="FILE", help="to be written"
    )
    promote.add_argument(
        "--fenced",
        action="store_true",
        help="the master answers this host, and no client can reach it",
    )
    promote.add_argument(
        "--remoting",
        metavar="HOST:PORT",
        help="where RocketMQ's clients are served (default: *:listenPort of the master)",
    )
    promote.add_argument(
        "--name-server", metavar="HOST:PORT", help="also be the name server there, in its place"
    )
    promote.add_argument(
        "--broker-ip",
        metavar="IP",
        help="where clients are told to find this host (default: an address of this host)",
    )
    promote.add_argument(
        "--runtime-dir", type=Path, metavar="DIR", help="listen.runtime_dir of the node"
    )
    promote.add_argument(
        "--leave-behind",
        metavar="USES",
        help="what of RocketMQ 5 may be lost: batch,static, say (store.leave_behind)",
    )
    promote.set_defaults(func=LateCommand("node.understudies", "promote"), address=[], keys=None)
    for verb in (add, run):
        _add_access(verb)
    for verb in (add, run, show, promote):
        verb.add_argument(
            "--folder", type=Path, required=True, metavar="DIR", help="of the understudy"
        )
    for verb in (add, run, show, promote):
        verb.add_argument("--json", action="store_true", help="print one JSON object")


def _add_access(verb: argparse.ArgumentParser) -> None:
    """How the master lets in who asks."""
    verb.add_argument(
        "--access-key-file",
        type=Path,
        metavar="FILE",
        help="accessKey and secretKey of an account, as in mqadmin's tools.yml: questions to"
        " the master are signed with it",
    )
    verb.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="certificates, of which one has signed the master's: its remoting port has TLS",
    )
