"""``ledgermq migrate``: from a RocketMQ broker to a node on the same directory, and back.

Each verb is one step on one host; nothing here starts or stops a broker. The page
``docs/operating/migrate.md`` has the whole move, with what clients see meanwhile.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.late_command import LateCommand


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``migrate`` with its verbs."""
    parser = subparsers.add_parser("migrate", help="move from RocketMQ in place, and back")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    check = verbs.add_parser(
        "check",
        help="say what stands in the way, while the broker still runs",
        description="Reads broker.conf and the store, and changes nothing. Exit status 1: "
        "something stands in the way, which is said.",
    )
    check.add_argument("broker_conf", type=Path, help="the broker.conf of this host's broker")
    check.set_defaults(func=LateCommand("store.migration", "check_move"))

    take = verbs.add_parser(
        "take-over",
        help="write down what the stopped broker's store holds, and settings for a node on it",
    )
    take.add_argument("broker_conf", type=Path, help="the broker.conf of this host's broker")
    take.add_argument("--manifest", type=Path, required=True, metavar="FILE", help="to be written")
    take.add_argument("--settings", type=Path, required=True, metavar="FILE", help="to be written")
    take.add_argument(
        "--remoting",
        metavar="HOST:PORT",
        help="where RocketMQ's clients are served (default: *:listenPort)",
    )
    take.add_argument(
        "--name-server", metavar="HOST:PORT", help="also be the name server there, in its place"
    )
    take.add_argument(
        "--address",
        action="append",
        default=[],
        metavar="ID-HOST:PORT",
        help="where a member serves RocketMQ's clients, if its port is not this one's; repeated",
    )
    take.add_argument(
        "--broker-ip",
        metavar="IP",
        help="where clients are told to find this host (default: brokerIP1, else an address of"
        " this host, as RocketMQ takes it)",
    )
    take.add_argument("--keys", type=Path, metavar="DIR", help="raft.keys_dir of this member")
    take.add_argument(
        "--runtime-dir", type=Path, metavar="DIR", help="listen.runtime_dir of the node"
    )
    take.set_defaults(func=LateCommand("store.migration", "take_store_over"))

    for verb in (check, take):
        verb.add_argument(
            "--leave-behind",
            metavar="USES",
            help="what of a RocketMQ 5 store may be lost: batch,static, say (store.leave_behind)",
        )

    verify = verbs.add_parser(
        "verify",
        help="see that all that the manifest has is in the store, whoever serves it",
        description="May be asked of a running node or broker, too. Exit status 2: something is "
        "missing or different, which is said.",
    )
    verify.add_argument("manifest", type=Path, help="of take-over, or of back")
    verify.add_argument("directory", type=Path, help="storePathRootDir")
    verify.set_defaults(func=LateCommand("store.migration", "verify_move"))

    back = verbs.add_parser(
        "back", help="write down what the stopped node's store holds, for RocketMQ to go on with"
    )
    back.add_argument("directory", type=Path, help="storePathRootDir")
    back.add_argument("--manifest", type=Path, required=True, metavar="FILE", help="to be written")
    back.add_argument(
        "--to",
        choices=["4.9", "5"],
        default="4.9",
        help="which RocketMQ gets it: 5 goes on with timers, of 7 days at most (default: 4.9)",
    )
    back.set_defaults(func=LateCommand("store.migration", "go_back"))
    for verb in (verify, back):
        verb.add_argument("--self-id", help="whose DLedger log, where there are several")
    for verb in (check, take, verify, back):
        verb.add_argument("--json", action="store_true", help="print one JSON object")
