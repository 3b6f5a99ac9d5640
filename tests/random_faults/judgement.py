"""What came of a run: every rule on the records and the log, and the members' stores compared."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from ledgermq.formats.findings import Severity
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.store.store_view import StoreView
from tests.process.group_nodes import Group, Member
from tests.random_faults.records import Outcome, Records
from tests.random_faults.rules import messages, services
from tests.random_faults.rules.stored import Rule, Stored

KEPT = "stored"
RULES: tuple[Rule, ...] = (
    messages.lost,
    messages.misplaced,
    messages.doubled,
    messages.invented,
    messages.uncounted,
    messages.out_of_key_order,
    messages.out_of_time_order,
    messages.misread,
    messages.passed_over,
    services.not_once,
    services.too_early,
    services.never_came,
    services.came_though_cancelled,
    services.not_whole,
    services.seen_too_early,
    services.offset_fell_back,
    services.taken_though_closed,
    services.unread_by_group,
    services.begun_behind_commit,
)
TRACEBACK = re.compile(r"Traceback \(most recent call last\)|this is a bug of ledgermq")


def broken_rules(records: Records, stored: Sequence[Stored]) -> dict[str, list[str]]:
    """What breaks each rule that is broken."""
    found = {rule.__name__: list(rule(records, stored)) for rule in RULES}
    return {name: broken for name, broken in found.items() if broken}


def stored_in(member: Member) -> list[Stored]:
    """All messages in the log of a stopped member, in its order."""
    view = StoreView(member.node.root)
    try:
        return [
            Stored(
                message.topic,
                message.queue_id,
                message.queue_offset,
                bytes(message.body).split(b" ", 1)[0].decode(errors="replace"),
                message.unique_id,
                message.physical_offset,
                message.store_timestamp,
            )
            for _, _, message in view.log.iterate()
        ]
    finally:
        view.close()


def keep(folder: Path, stored: Sequence[Stored]) -> None:
    """Write what a log had beside the records, so that it can be judged again."""
    with (folder / KEPT).open("w") as file:
        file.writelines(json.dumps(one) + "\n" for one in stored)


def kept(folder: Path) -> list[Stored]:
    """What ``keep`` has written."""
    with (folder / KEPT).open() as file:
        return [Stored(*json.loads(line)) for line in file]


def differing(group: Group, first: Sequence[Stored]) -> Iterator[str]:
    """How the stores of stopped members differ, and what ``store check`` finds in them."""
    if not group.has_one_log():
        yield "members have different logs"
    for member in group.members:
        # A leader that was elected while others had stopped may have stored what only it has, at
        # the end: ``has_one_log`` says whether more is missing.
        there = stored_in(member)
        common = min(len(there), len(first))
        if there[:common] != list(first[:common]):
            yield f"{member.name} has other messages"
        for one in check_store(member.node.root, CheckOptions()).findings:
            if one.severity is not Severity.NOTE:
                yield f"{member.name}: {one.as_text()}"


def tracebacks(paths: Iterable[Path]) -> Iterator[str]:
    """Lines of logs that say that a program was wrong."""
    for path in paths:
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if TRACEBACK.search(line):
                yield f"{path.name}:{number}: {line}"


def outcomes(records: Records) -> dict[str, dict[str, int]]:
    """How many operations of each verb, and kind of client, had which outcome."""
    found: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(Outcome, 0))
    for one in records.all():
        found[f"{one.kind} {one.verb}"][one.outcome] += len(one.asked.get("values", "1"))
    return dict(found)


def longest_pauses(records: Records, begin_ns: int, end_ns: int) -> Mapping[str, float]:
    """The longest time in seconds, by kind of client, in which none was acknowledged anything.

    A reader is by what it is given.
    """
    times: defaultdict[str, list[int]] = defaultdict(lambda: [begin_ns])
    for one in records.all():
        is_nothing = one.verb == "decide" or not one.told.get("offsets", "asked for nothing")
        if one.is_ok and begin_ns <= one.end_ns <= end_ns and not is_nothing:
            times[one.kind].append(one.end_ns)
    found = {}
    for kind, of_kind in times.items():
        of_kind.append(end_ns)
        of_kind.sort()
        gaps = [later - sooner for sooner, later in pairwise(of_kind)]
        found[kind] = max(gaps) / 1e9
    return found
