"""Last events of a node in the journal."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ledgermq.model.errors import LedgerError
from ledgermq.model.events import Event
from ledgermq.process.systemd.systemd_tools import run_tool

_LEVELS = {"2": "CRIT", "3": "ERROR", "4": "WARN"}


class Told(NamedTuple):
    """One event."""

    at: datetime
    level: str
    event: str
    process: str
    text: str


class LastEvents(NamedTuple):
    """The last ones, the oldest first; ``why_not`` says why there are none to be had."""

    told: list[Told]
    why_not: str = ""


def last_events(node: str, count: int, *, uid: int, journal: Path | None = None) -> LastEvents:
    """Look into the journal.

    Args:
        node: node.self_id.
        uid: of the node's account, which alone is believed: every account of a host may write
            lines with any fields but those that journald itself adds.
        count: so many.
        journal: folder of journal files; this machine's own when left out.
    """
    tool = shutil.which("journalctl")
    if tool is None:
        return LastEvents([], "journalctl is not installed")
    where = [] if journal is None else [f"--directory={journal}"]
    matches = [
        f"_UID={uid}",
        f"LEDGERMQ_NODE={node}",
        *(f"MESSAGE_ID={event.value}" for event in Event),
    ]
    words = ["--output=json", "--all", "--quiet", "--reverse", f"--lines={count}"]
    try:
        text = run_tool([tool, *where, *words, *matches])
    except LedgerError as error:
        return LastEvents([], f"the journal cannot be read: {error.message}")
    told = [one for line in text.splitlines() if (one := _told(line, uid)) is not None]
    return LastEvents(told[::-1], "" if told else "the journal has none")


def _told(line: str, uid: int) -> Told | None:
    """The event of a line; None where it is none of the account's, or lacks a field."""
    try:
        entry = json.loads(line)
        if entry["_UID"] != str(uid):
            return None
        # What was received, for who sent it may have been held up.
        at = datetime.fromtimestamp(int(entry["__REALTIME_TIMESTAMP"]) / 1_000_000).astimezone()
        process = str(entry.get("LEDGERMQ_PROCESS", ""))
        text = " ".join(str(entry["MESSAGE"]).removeprefix(f"{process}: ").split())
        level = _LEVELS.get(str(entry["PRIORITY"]), "info")
        return Told(at, level, str(entry["LEDGERMQ_EVENT"]), process, text)
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return None
