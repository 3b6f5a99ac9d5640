"""``ledgermq understudy``: a folder that follows a running RocketMQ master, and takes its place.

``add`` looks at the master and prepares the folder, ``run`` follows until it is told to stop,
``show`` reads what ``run`` has told last, and ``promote`` makes the folder a node's store, and is
that node if asked to.
"""

from __future__ import annotations

import argparse

from ledgermq.cli.arguments import LateCommand, takes
from ledgermq.process.library_threads import keep_libraries_to_one_thread

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
    takes(add, "master HOST:PORT", "where it waits for slaves (haListenPort)")
    takes(add, "--remoting HOST:PORT", "of its clients (listenPort)", required=True)
    add.set_defaults(func=LateCommand("node.understudies", "add"))

    run = verbs.add_parser(
        "run",
        help="follow the master until told to stop (SIGTERM)",
        description="What is received is synced before the master is told of it. At its end it says"
        " how far it came. Exit status 1: the master's log is another one, or the master cannot be"
        " followed.",
    )
    takes(
        run,
        "--rate MIB",
        f"most MiB a second that are taken from the master (default: {RATE_DEFAULT_MIB})",
        type=int,
        default=RATE_DEFAULT_MIB,
    )
    run.set_defaults(func=LateCommand("node.understudies", "run"))

    show = verbs.add_parser("show", help="show how far it is, and what is wrong")
    takes(
        show,
        "--metrics",
        "print it as a file for the textfile collector of Prometheus' node exporter",
    )
    show.set_defaults(func=LateCommand("node.understudies", "show"))

    promote = verbs.add_parser(
        "promote",
        help="make a node's store of the folder, when the master and run have ended",
        description="Builds what is missing of queues and index, and writes settings for the node."
        " Killed at any moment, it is run again. The master must not be started any more.",
    )
    takes(promote, "--settings FILE", "to be written", required=True)
    takes(
        promote,
        "--serve",
        "be the node then: type it while the master runs; it waits until that has ended, and"
        " ends run",
    )
    takes(promote, "--fenced", "the master answers this host, and no client can reach it")
    takes(
        promote,
        "--remoting HOST:PORT",
        "where RocketMQ's clients are served (default: *:listenPort of the master)",
    )
    takes(promote, "--name-server HOST:PORT", "also be the name server there, in its place")
    takes(
        promote,
        "--broker-ip IP",
        "where clients are told to find this host (default: an address of this host)",
    )
    takes(promote, "--runtime-dir DIR", "listen.runtime_dir of the node")
    takes(
        promote,
        "--leave-behind USES",
        "what of RocketMQ 5 may be lost: batch,static, say (store.leave_behind)",
    )
    promote.set_defaults(func=_promote, address=[], keys=None)
    for verb in (add, run):
        _add_access(verb)
    for verb in (add, run, show, promote):
        takes(verb, "--folder DIR", "of the understudy", required=True)
    for verb in (add, run, show, promote):
        takes(verb, "--json", "print one JSON object")


def _promote(arguments: argparse.Namespace) -> int:
    # Before any of them is imported: the node that it may become is forked.
    keep_libraries_to_one_thread()
    return LateCommand("node.understudies", "promote")(arguments)


def _add_access(verb: argparse.ArgumentParser) -> None:
    """How the master lets in who asks."""
    takes(
        verb,
        "--access-key-file FILE",
        "accessKey and secretKey of an account, as in mqadmin's tools.yml: questions to"
        " the master are signed with it",
    )
    takes(
        verb,
        "--ca-file FILE",
        "certificates, of which one has signed the master's: its remoting port has TLS",
    )
