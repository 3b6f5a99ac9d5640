"""Nodes that do not run, for the doctor to look at."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ledgermq.doctor.finding import Diagnosis, Weight
from ledgermq.doctor.subject import Subject
from ledgermq.model.config.settings import ListenSection, Settings, StoreSection
from ledgermq.model.ids import NodeId
from ledgermq.sessions.keys.peer_keys import init_keys

PEERS = ("n0-127.0.0.1:23911", "n1-127.0.0.1:23912", "n2-127.0.0.1:23913")


def subject_in(folder: Path, **sections: dict[str, Any]) -> Subject:
    """A node with its folders below ``folder``, and these values of other sections."""
    settings = Settings(
        store=StoreSection(path_root_dir=folder / "store"),
        listen=ListenSection(runtime_dir=folder / "run"),
    )
    changed = {
        name: replace(getattr(settings, name), **values) for name, values in sections.items()
    }
    return Subject(replace(settings, **changed), None, None)


def member_in(folder: Path, **sections: dict[str, Any]) -> Subject:
    """A member of a group of three, with keys."""
    keys, *_ = init_keys(folder / "keys", [NodeId("n0"), NodeId("n1"), NodeId("n2")])
    about = {
        "node": {"self_id": "n0", "peers": PEERS},
        "raft": {"keys_dir": keys},
    }
    for name, values in sections.items():
        about.setdefault(name, {}).update(values)
    return subject_in(folder, **about)


def by_check(
    checks: Callable[[Subject], Iterator[Diagnosis]], subject: Subject
) -> dict[str, Diagnosis]:
    """Findings by their names."""
    return {finding.check: finding for finding in checks(subject)}


def verdicts(findings: dict[str, Diagnosis]) -> dict[str, Weight]:
    """Verdicts by the names of checks."""
    return {check: finding.verdict for check, finding in findings.items()}


def listener() -> socket.socket:
    """A socket that listens on loopback."""
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen()
    return made
