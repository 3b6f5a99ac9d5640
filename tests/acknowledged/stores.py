"""Stores at the beginning of their life: new, RocketMQ's, and those of an older version of ours.

An older version is not at hand; what it left is made of what today's leaves. Before decision 44 the
place of a table that no file told of was the end of the log, and that was remembered in memory:
``AT_NO_PLACE`` was written when a broker began beside files from outside, and anything else a
second after the first change. A death within that second left a log with commands, and these files.
And RocketMQ drops ``ledgermqApplied`` from its own files whenever it writes them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ledgermq.broker.state.broker_tables import ROWS_AT_ONCE_MAX
from ledgermq.formats.config_json import APPLIED_KEY, OFFSETS_FILE
from ledgermq.rules.state.state_tables import OWN_FILES
from ledgermq.rules.tables import delays, groups, moves, sinks, topics
from ledgermq.rules.tables.groups import SubscriptionGroup
from tests.process.running import topics_document

AT_NO_PLACE: dict[str, dict[str, object]] = {
    moves.FILE: {"moves": {}, APPLIED_KEY: -1},
    delays.FILE: {"offsetTable": {}, "ledgermqMoves": {}, APPLIED_KEY: -1},
    sinks.FILE: {"sinks": {}, APPLIED_KEY: -1},
}

Golden = Callable[[str], Path]


class Kind(NamedTuple):
    """How a store begins.

    Attributes:
        name: for reports.
        log: ``commitlog`` or ``dledger``.
        golden: of RocketMQ's, its name; with several members each has its own.
        topics: so many are in a file that comes from outside, and as many groups if they are more
            than are written with each change (``ROWS_AT_ONCE_MAX``).
        change: what happens to the files of each node between its first end and its second start.
        ends_in_order: the first end is none by a kill.
    """

    name: str
    log: str
    golden: str = ""
    topics: int = 0
    change: Callable[[Path], None] | None = None
    ends_in_order: bool = False

    def begin(self, root: Path, golden: Golden, member: int = 0) -> None:
        """Have the store at ``root``, which is not there."""
        if self.golden:
            name = self.golden.replace("gd0", f"gd{member}")
            shutil.copytree(golden(name), root)
        elif self.topics:
            config = root / "config"
            config.mkdir(parents=True)
            names = [f"orders{number}" for number in range(self.topics)]
            (config / topics.FILE).write_text(topics_document(*names))
            if self.topics > ROWS_AT_ONCE_MAX:
                table = {name: SubscriptionGroup(name).to_fields() for name in names}
                version = {"counter": 1, "timestamp": 1}
                document = {"dataVersion": version, "subscriptionGroupTable": table}
                (config / groups.FILE).write_text(json.dumps(document))


def path_of(root: Path, file: str) -> Path:
    """Where a table's file is."""
    return root / ("ledgermq" if file in OWN_FILES else "config") / file


def at_no_place(root: Path) -> None:
    """The files of moves as an older version has written them when it began."""
    for file, content in AT_NO_PLACE.items():
        path_of(root, file).write_text(json.dumps(content))


def without_places(root: Path) -> None:
    """RocketMQ's files without the key that it does not know; to be done after an end in order."""
    for path in (root / "config").glob("*.json"):
        content = json.loads(path.read_bytes())
        content.pop(APPLIED_KEY, None)
        path.write_text(json.dumps(content))


def forget_offsets(root: Path) -> None:
    """The file of offsets empty, and said to be as new as the newest file: what has to be found."""
    files = [*(root / "config").glob("*.json"), *(root / "ledgermq").glob("*.json")]
    places = [json.loads(path.read_bytes()).get(APPLIED_KEY, 0) for path in files]
    content = {"offsetTable": {}, APPLIED_KEY: max(places)}
    path_of(root, OFFSETS_FILE).write_text(json.dumps(content))


OURS = (
    Kind("new plain", "commitlog"),
    Kind("new DLedger", "dledger"),
    Kind("plain, topics from outside", "commitlog", topics=1),
    Kind("DLedger, topics from outside", "dledger", topics=1),
    Kind("many topics, plain", "commitlog", topics=ROWS_AT_ONCE_MAX + 100),
    Kind("many topics, DLedger", "dledger", topics=ROWS_AT_ONCE_MAX + 100),
    Kind("older plain", "commitlog", topics=1, change=at_no_place),
    Kind("older DLedger", "dledger", topics=1, change=at_no_place),
    Kind("keys dropped, plain", "commitlog", change=without_places, ends_in_order=True),
    Kind("keys dropped, DLedger", "dledger", change=without_places, ends_in_order=True),
)

JAVAS = (
    Kind("Java's plain", "commitlog", "gs1"),
    Kind("Java's plain, killed", "commitlog", "gs1.live"),
    Kind("Java's DLedger", "dledger", "gd0"),
    Kind("Java's DLedger, killed", "dledger", "gd0.live"),
)

OF_GROUPS = tuple(
    kind for kind in (*OURS, *JAVAS) if kind.log == "dledger" and not kind.ends_in_order
)
