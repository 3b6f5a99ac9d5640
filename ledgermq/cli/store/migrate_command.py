"""``ledgermq migrate``: from a RocketMQ broker to a node on the same directory, and back.

Each verb is one step on one host; nothing here starts or stops a broker. The page
``docs/operating/migrate.md`` has the whole move, with what clients see meanwhile.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ledgermq.cli.arguments import LateCommand, takes


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
    takes(check, "broker_conf", "the broker.conf of this host's broker", type=Path)
    check.set_defaults(func=LateCommand("store.migration", "check_move"))

    take = verbs.add_parser(
        "take-over",
        help="write down what the stopped broker's store holds, and settings for a node on it",
    )
    takes(take, "broker_conf", "the broker.conf of this host's broker", type=Path)
    takes(take, "--manifest FILE", "to be written", required=True)
    takes(take, "--settings FILE", "to be written", required=True)
    takes(
        take, "--remoting HOST:PORT", "where RocketMQ's clients are served (default: *:listenPort)"
    )
    takes(take, "--name-server HOST:PORT", "also be the name server there, in its place")
    takes(
        take,
        "--address ID-HOST:PORT",
        "where a member serves RocketMQ's clients, if its port is not this one's; repeated",
        action="append",
        default=[],
    )
    takes(
        take,
        "--broker-ip IP",
        "where clients are told to find this host (default: brokerIP1, else an address of"
        " this host, as RocketMQ takes it)",
    )
    takes(take, "--keys DIR", "raft.keys_dir of this member")
    takes(take, "--runtime-dir DIR", "listen.runtime_dir of the node")
    take.set_defaults(func=LateCommand("store.migration", "take_store_over"))

    for verb in (check, take):
        takes(
            verb,
            "--leave-behind USES",
            "what of a RocketMQ 5 store may be lost: batch,static, say (store.leave_behind)",
        )

    verify = verbs.add_parser(
        "verify",
        help="see that all that the manifest has is in the store, whoever serves it",
        description="May be asked of a running node or broker, too. Exit status 2: something is "
        "missing or different, which is said.",
    )
    takes(verify, "manifest", "of take-over, or of back", type=Path)
    takes(verify, "directory", "storePathRootDir", type=Path)
    verify.set_defaults(func=LateCommand("store.migration", "verify_move"))

    back = verbs.add_parser(
        "back", help="write down what the stopped node's store holds, for RocketMQ to go on with"
    )
    takes(back, "directory", "storePathRootDir", type=Path)
    takes(back, "--manifest FILE", "to be written", required=True)
    takes(
        back,
        "--to",
        "which RocketMQ gets it: 5 goes on with timers, of 7 days at most (default: 4.9)",
        choices=["4.9", "5"],
        default="4.9",
    )
    back.set_defaults(func=LateCommand("store.migration", "go_back"))
    for verb in (verify, back):
        takes(verb, "--self-id SELF_ID", "whose DLedger log, where there are several")
    for verb in (check, take, verify, back):
        takes(verb, "--json", "print one JSON object")
