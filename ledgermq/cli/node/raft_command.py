"""``ledgermq raft``: the group as this machine's node sees it.

Exit status: 0 done; 1 the settings, the command line, or the node refuses; 2 no node is running.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from ledgermq.cli.arguments import takes
from ledgermq.cli.output import tell
from ledgermq.model.config.settings import ListenSection
from ledgermq.model.errors import (
    BusyError,
    ConfigError,
    NotLeaderError,
    ProtocolError,
    TimedOutError,
)
from ledgermq.process import control
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings.settings_loading import load_settings

LOOK_AGAIN_S = 0.02
HEARD_OF_S = 5.0
"""A node that is to be added talks with the members each second, if it runs."""

TRANSFER_AGAIN_S = 1.0
"""Each time stands in the node's log."""

ANSWER_MAX_S = 30.0
"""A node that says nothing for so long hangs, however long a change may take."""

ASK_AGAIN_S = 0.1

MEMBER_KINDS = ("voters", "learners", "witnesses", "bodiless")
"""Kinds of members in a status, as they are told in that order."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``raft`` and its sub-commands."""
    parser = subparsers.add_parser("raft", help="look at the group, and hand over its leadership")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    status = commands.add_parser("status", help="role, term, members, and how far each is")
    why = commands.add_parser("why-no-leader", help="why nobody leads, as far as this node knows")
    transfer = commands.add_parser(
        "transfer", help="hand the leadership to another member; asked of the leader"
    )
    takes(transfer, "target NODE", "who shall lead, as n1")
    takes(transfer, "--timeout SECONDS", "default: 10", default=10.0)
    forget = commands.add_parser(
        "forget", help="trust the next disk of a member that was given an empty one"
    )
    takes(forget, "member NODE", "whose disk is another one now, as n1")
    add = commands.add_parser(
        "add",
        help="take a node into the group, or make a learner a voter; asked of the leader",
        description="Takes a node into the group as a learner, waits until it has caught up, and "
        'makes it a voter. Its settings say node.initial_cluster_state = "existing", and all '
        "members have its public key. A change that is cut short goes on when asked again.",
    )
    takes(add, "member NODE", "id of the node, as n3")
    takes(add, "address HOST:PORT", "where it talks with members", nargs="?")
    kind = add.add_mutually_exclusive_group()
    takes(kind, "--learner", "a copy that does not vote")
    takes(kind, "--witness", "a voter that leads only while nobody else can")
    takes(
        add,
        "--without-bodies",
        "with --witness: one that holds no messages; its settings say node.witness = true",
    )
    takes(add, "--timeout SECONDS", "default: 600", default=600.0)
    remove = commands.add_parser("remove", help="go on without a member; asked of the leader")
    takes(remove, "member NODE", "id of the node, as n3")
    takes(remove, "--timeout SECONDS", "default: 10", default=10.0)
    for command, run in (
        (status, _status),
        (why, _why_no_leader),
        (transfer, _transfer),
        (forget, _forget),
        (add, _add),
        (remove, _remove),
    ):
        where = command.add_mutually_exclusive_group()
        takes(where, "--runtime-dir DIR", "listen.runtime_dir")
        takes(where, "--config FILE", "settings that name it")
        takes(command, "--json", "print JSON")
        command.set_defaults(func=run)


def describe(status: Mapping[str, object]) -> Iterator[str]:
    """The status for people, line by line."""
    last = cast("Mapping[str, int]", status["last"])
    yield f"node        {status['node']}, {status['role']} in term {status['term']}"
    yield f"leader      {status['leader'] or 'none known'}"
    yield f"log         last entry {last['index']:,} of term {last['term']}"
    yield f"            held {status['held']:,}, committed {status['commit']:,}"
    if status["role"] != "witness":
        yield f"writer      {status['writer']}"
    yield from _members(status)
    # A node that was not restarted since this command came with a newer version has no levels.
    levels = cast("Mapping[str, int | None]", status.get("levels", {}))
    known = ", ".join(f"{node} {'?' if at is None else at}" for node, at in levels.items())
    if known:
        yield f"levels      {known}"
    direct = cast("Sequence[str]", status.get("direct", ()))
    if direct:
        yield f"direct      {', '.join(direct)}"
    if status["transfer"]:
        yield f"hand-over   {status['transfer']}"
    if status["disk_is_sick"]:
        yield "disk        sick: this node leads only where no other one could"
    if status.get("is_outdated"):
        yield "version     too old for the log: this node does not lead before it has a newer one"
    lost = cast("Mapping[str, int] | None", status.get("lost"))
    if lost:
        yield (
            f"damage      the log lost entries up to {lost['index']:,} of term {lost['term']}:"
            " this node does not lead before it has them again"
        )
    peers = cast("Sequence[Mapping[str, object]]", status["peers"])
    if peers:
        yield ""
        yield f"{'peer':<8}{'mode':<12}{'behind':>12}{'in flight':>12}{'silent':>10}  could lead"
    for peer in peers:
        could_lead = "yes" if peer["could_lead"] else "no"
        yield (
            f"{peer['node']:<8}{peer['mode']:<12}{peer['behind']:>12,}{peer['in_flight']:>12}"
            f"{peer['silent_ms']:>7} ms  {could_lead}"
        )
    for peer_id, reason in cast("Mapping[str, str]", status["refusals"]).items():
        yield f"refused     {peer_id}: {reason}"


def _members(status: Mapping[str, object]) -> Iterator[str]:
    for kind in MEMBER_KINDS:
        # A node that was not restarted since this command came says nothing of bodies.
        names = cast("Sequence[str]", status.get(kind, ()))
        if names:
            yield f"{kind:<12}{', '.join(names)}"
    if status.get("copies") is not None:
        leans = ", leans on its witness" if status["leans_on_witness"] else ""
        yield f"bodies      of all that is committed: {status['copies']} members{leans}"


def _status(arguments: argparse.Namespace) -> int:
    status = _ask(arguments, "status")
    print(json.dumps(status, indent=2) if arguments.json else "\n".join(describe(status)))
    return 0


def _why_no_leader(arguments: argparse.Namespace) -> int:
    answer = _ask(arguments, "why-no-leader")
    if arguments.json:
        print(json.dumps(answer, indent=2))
    elif answer["leader"]:
        print(f"{answer['leader']} leads")
    else:
        print("\n".join(cast("Sequence[str]", answer["reasons"])))
    return 0


def _transfer(arguments: argparse.Namespace) -> int:
    """Hand over, and wait until the target leads; one that raft has abandoned is asked for again.

    Raises:
        TimedOutError: it does not, in time; the old leader leads on, or there is another one.
    """
    begin = asked = time.monotonic()
    _ask(arguments, "transfer", target=arguments.target)
    while True:
        status = _ask(arguments, "status")
        if status["leader"] == arguments.target:
            break
        if time.monotonic() - begin >= arguments.timeout:
            raise TimedOutError(
                "the leadership was not handed over",
                target=arguments.target,
                leader=status["leader"],
                waited_s=arguments.timeout,
            )
        is_abandoned = status["role"] == "leader" and status.get("transfer", "") is None
        if is_abandoned and time.monotonic() - asked >= TRANSFER_AGAIN_S:
            # It took longer than raft.transfer_timeout_ms.
            asked = time.monotonic()
            with suppress(BusyError, NotLeaderError):
                _ask(arguments, "transfer", target=arguments.target)
        time.sleep(LOOK_AGAIN_S)
    took_ms = round((time.monotonic() - begin) * 1_000)
    document = {"leader": status["leader"], "term": status["term"], "took_ms": took_ms}
    text = f"{status['leader']} leads in term {status['term']}, after {took_ms} ms"
    return tell(arguments, document, text)


def _forget(arguments: argparse.Namespace) -> int:
    answer = _ask(arguments, "forget", node=arguments.member)
    text = f"no disk of {arguments.member} was known"
    if answer["forgotten"]:
        text = f"the next disk of {arguments.member} is trusted; say so on the other members, too"
    return tell(arguments, answer, text)


def _add(arguments: argparse.Namespace) -> int:
    """Learner first, then voter; each step is waited for."""
    deadline = time.monotonic() + arguments.timeout
    member = arguments.member
    is_bodiless = arguments.without_bodies
    if is_bodiless and not arguments.witness:
        raise ConfigError("--without-bodies is for a --witness alone", node=member)
    status = _ask(arguments, "status")
    if _is(status, member, "voters") and (
        arguments.learner
        or arguments.witness != _is(status, member, "witnesses")
        or is_bodiless != (member in cast("Sequence[str]", status.get("bodiless", ())))
    ):
        raise ConfigError("the member votes otherwise: remove it before it comes back", node=member)
    if is_bodiless:
        return _add_bodiless(arguments, deadline, status)
    if not _is(status, member, "voters", "learners"):
        _hear(arguments)
        fields = {} if arguments.address is None else {"address": arguments.address}
        _ask_patiently(arguments, deadline, "add", node=member, kind="learner", **fields)
    # Also of one that is there: it may be since an order that ended before that was certain.
    _wait_committed(arguments, deadline, member, "voters", "learners")
    if not arguments.learner:
        if not _is(_ask(arguments, "status"), member, "voters"):
            kind = "witness" if arguments.witness else "voter"
            _ask_patiently(arguments, deadline, "add", node=member, kind=kind)
        _wait_committed(arguments, deadline, member, "voters")
    return _tell_members(arguments)


def _add_bodiless(
    arguments: argparse.Namespace, deadline: float, status: Mapping[str, object]
) -> int:
    """A voter at once: there is nothing that it would have to catch up with."""
    member = arguments.member
    if not _is(status, member, "voters"):
        _hear(arguments)
        fields = {} if arguments.address is None else {"address": arguments.address}
        _ask_patiently(arguments, deadline, "add", node=member, kind="bodiless", **fields)
    _wait_committed(arguments, deadline, member, "voters")
    return _tell_members(arguments)


def _hear(arguments: argparse.Namespace) -> None:
    """Wait a little until the node has told what it knows.

    One that does not run is added all the same, and refused when it comes.
    """
    until = time.monotonic() + min(HEARD_OF_S, arguments.timeout)
    while time.monotonic() < until:
        try:
            if _ask(arguments, "hear", node=arguments.member)["is_heard"]:
                return
        except ProtocolError:
            # Too old, which its adding is refused for; or the leader is one that does not know the
            # question.
            return
        time.sleep(ASK_AGAIN_S)


def _remove(arguments: argparse.Namespace) -> int:
    deadline = time.monotonic() + arguments.timeout
    _ask_patiently(arguments, deadline, "remove", node=arguments.member)
    _wait_committed(arguments, deadline, arguments.member)
    return _tell_members(arguments)


def _tell_members(arguments: argparse.Namespace) -> int:
    status = _ask(arguments, "status")
    members = {kind: status[kind] for kind in MEMBER_KINDS if status.get(kind) is not None}
    if not members.get("bodiless"):
        members.pop("bodiless", None)
    named = {kind: cast("Sequence[str]", names) for kind, names in members.items() if names}
    text = "\n".join(f"{kind:<12}{', '.join(names)}" for kind, names in named.items())
    return tell(arguments, members, text)


def _is(status: Mapping[str, object], member: str, *kinds: str) -> bool:
    return any(member in cast("Sequence[str]", status[kind]) for kind in kinds)


def _ask_patiently(
    arguments: argparse.Namespace, deadline: float, verb: str, **fields: object
) -> None:
    """Ask until the leader is not busy any more with what must come first.

    Raises:
        BusyError: it still is, in the end.
    """
    told = ""
    while True:
        try:
            _ask(arguments, verb, **fields)
        except BusyError as error:
            if time.monotonic() >= deadline:
                raise
            if str(error) != told and not arguments.json:
                told = str(error)
                print(f"waits: {told}", file=sys.stderr)
            time.sleep(ASK_AGAIN_S)
        else:
            return


def _wait_committed(
    arguments: argparse.Namespace, deadline: float, member: str, *kinds: str
) -> None:
    """Wait until it is committed that ``member`` is one of ``kinds``, or of none without any.

    Raises:
        TimedOutError: it is not, in time; the change may still come about.
        NotLeaderError: the leader that was asked leads no more; another one may have the change.
    """
    wanted = kinds or ("voters", "learners")
    while True:
        status = _ask(arguments, "status")
        if status["role"] != "leader":
            # What it knows may still be cut, or, before it has read its log, be the settings'.
            raise NotLeaderError(
                "only the leader knows what is committed: ask it again", leader=status["leader"]
            )
        is_committed = cast("int", status["membership_index"]) <= cast("int", status["commit"])
        if _is(status, member, *wanted) == bool(kinds) and is_committed:
            return
        if time.monotonic() >= deadline:
            raise TimedOutError(
                "the change of the membership is not committed",
                member=member,
                waited_s=arguments.timeout,
            )
        time.sleep(LOOK_AGAIN_S)


def _ask(arguments: argparse.Namespace, verb: str, **fields: object) -> dict[str, object]:
    directory: Path | None = arguments.runtime_dir
    if directory is None:
        config: Path | None = arguments.config
        listen = load_settings(config).listen if config else ListenSection()
        directory = listen.runtime_dir
    path = RuntimePaths(directory).raft_control
    # Who gives a change its time gives it to the answers, too: a node may be busy for a while.
    given_s: float = getattr(arguments, "timeout", 0.0)
    timeout_s = max(control.ANSWER_TIMEOUT_S, min(given_s, ANSWER_MAX_S))
    return control.ask(path, verb, timeout_s=timeout_s, **fields)
