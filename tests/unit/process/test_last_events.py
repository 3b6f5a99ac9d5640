"""Last events: what the node's own account has written, and nothing that lacks a field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledgermq.model.events import Event
from ledgermq.process.systemd.last_events import last_events

UID = 996
EVENT = next(iter(Event))
LINE = {
    "_UID": str(UID),
    "__REALTIME_TIMESTAMP": "1700000000000000",
    "PRIORITY": "4",
    "MESSAGE": "raft: it leads now",
    "LEDGERMQ_NODE": "n0",
    "LEDGERMQ_PROCESS": "raft",
    "LEDGERMQ_EVENT": EVENT.name,
    "MESSAGE_ID": EVENT.value,
}


def journal_of(lines: list[object], folder: Path) -> Path:
    """A journalctl that prints these lines, whatever it is asked, and keeps what it was asked."""
    (folder / "lines").write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "no JSON\n")
    tool = folder / "journalctl"
    tool.write_text(f'#!/bin/sh\necho "$@" > {folder}/asked\ncat {folder}/lines\n')
    tool.chmod(0o755)
    return tool


def test_who_is_not_the_nodes_account_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [{**LINE, "_UID": "1000", "MESSAGE": "forged"}]
    others += [{name: text for name, text in LINE.items() if name != gone} for gone in LINE]
    others += [{**LINE, "__REALTIME_TIMESTAMP": "9" * 30}, {**LINE, "__REALTIME_TIMESTAMP": None}]
    journal_of([LINE, *others, 7, [], "x", None], tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    found = last_events("n0", 9, uid=UID)

    assert {one.text for one in found.told} == {"it leads now", "raft: it leads now"}
    assert {(one.level, one.event) for one in found.told} == {("WARN", EVENT.name)}
    # Without its process, node and number, which the journal has matched, it is one all the same.
    assert len(found.told) == 4
    assert f"_UID={UID} LEDGERMQ_NODE=n0" in (tmp_path / "asked").read_text()
