"""Systemd unit that runs a node (``systemctl show``)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from ledgermq.process.systemd.systemd_tools import BOOTED, run_tool

SINGLE = "ledgermq.service"
_PROPERTIES = (
    "LoadState", "ActiveState", "SubState", "Result", "UnitFileState", "StatusText",
    "ActiveEnterTimestamp", "InactiveEnterTimestamp", "NRestarts", "MainPID", "ExecMainStatus",
)  # fmt: skip


class Unit(NamedTuple):
    """What systemd says of a unit; ``why_not`` says why it says nothing, and is empty else."""

    name: str
    properties: dict[str, str]
    why_not: str = ""


def unit_name(config: Path) -> str:
    """The unit of a settings file: the template's instance, but for ``ledgermq.toml``."""
    return SINGLE if config.stem == "ledgermq" else f"ledgermq@{config.stem}.service"


def look_at_unit(name: str, *, booted: Path = BOOTED) -> Unit:
    """Ask systemd.

    Raises:
        StorageError: systemctl failed.
        TimedOutError: it did not answer.
    """
    if not booted.is_dir():
        return Unit(name, {}, "systemd is not PID 1 here: whoever started the node watches it")
    tool = shutil.which("systemctl")
    if tool is None:
        return Unit(name, {}, "systemctl is not installed")
    return Unit(name, _properties(run_tool([tool, "show", name, *_words()])))


def describe(unit: Unit) -> str:
    """The unit in one line."""
    if unit.why_not:
        return unit.why_not
    found = unit.properties
    if found.get("LoadState") != "loaded":
        return f"{unit.name}: {found.get('LoadState') or 'unknown'}"
    is_active = found["ActiveState"] in ("active", "reloading")
    since = found["ActiveEnterTimestamp" if is_active else "InactiveEnterTimestamp"]
    parts = [f"{unit.name}: {found['ActiveState']} ({found['SubState']})"]
    if since:
        parts.append(f"since {since}")
    parts.append(f"restarted {found['NRestarts']} times by systemd")
    if found["Result"] not in ("success", ""):
        parts.append(f"ended with {found['Result']}, exit status {found['ExecMainStatus']}")
    parts.append({"enabled": "starts at boot"}.get(found["UnitFileState"], "not started at boot"))
    return ", ".join(parts)


def _words() -> list[str]:
    return [f"--property={name}" for name in _PROPERTIES]


def _properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return dict.fromkeys(_PROPERTIES, "") | {name: value for name, _, value in pairs}
