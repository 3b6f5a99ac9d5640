"""Examination: all checks in their order; one that cannot be made is a finding, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ledgermq.doctor.clock_checks import clock_checks
from ledgermq.doctor.disk_checks import disk_checks
from ledgermq.doctor.finding import PARTS, Diagnosis, fail, ok, warn
from ledgermq.doctor.host_checks import host_checks
from ledgermq.doctor.key_checks import key_checks
from ledgermq.doctor.level_checks import level_checks
from ledgermq.doctor.limit_checks import limit_checks
from ledgermq.doctor.peer_checks import peer_checks
from ledgermq.doctor.port_checks import port_checks
from ledgermq.doctor.settings_checks import read_checked, settings_checks
from ledgermq.doctor.store_checks import store_checks
from ledgermq.doctor.subject import Subject
from ledgermq.model.errors import LedgerError

Checks = Callable[[Subject], Iterator[Diagnosis]]

GROUPS: dict[str, Checks] = dict(
    zip(
        PARTS,
        (
            host_checks, limit_checks, disk_checks, clock_checks, port_checks, key_checks,
            peer_checks, level_checks, settings_checks, store_checks,
        ),
        strict=True,
    )
)  # fmt: skip
"""What is run for each part."""


def examine(path: Path, groups: tuple[str, ...] = PARTS) -> Iterator[Diagnosis]:
    """What is found with the node of a settings file, which may run or not.

    Writes a file of 128 KiB into the store's folder, which has no name and is gone at the end;
    binds ports for a moment when the node does not run; connects to each member, and says nothing.

    Args:
        path: the settings file.
        groups: which parts; without settings that can be used there are none but the first finding.
    """
    settings, about_file = read_checked(path)
    yield about_file
    if settings is None:
        return
    subject = Subject.of(settings)
    yield _state(subject)
    for group in groups:
        yield from _guarded(group, subject)


def _state(subject: Subject) -> Diagnosis:
    if subject.status is None:
        return ok("node.state", f"does not run, or cannot be asked: {subject.silence}")
    raft = subject.status["raft"]
    value = f"{subject.status['state']}, {raft['role']} in term {raft['term']}"
    # A node that was started by an earlier version tells no health.
    health = subject.status.get("health")
    reasons = health["reasons"] if health else []
    if not reasons:
        return ok("node.state", value)
    return warn(
        "node.state",
        f"{value}: {'; '.join(reason['text'] for reason in reasons)}",
        limit="ready",
        change=f"see {', '.join(reason['see'] for reason in reasons)}",
    )


def _guarded(group: str, subject: Subject) -> Iterator[Diagnosis]:
    try:
        yield from GROUPS[group](subject)
    except (LedgerError, OSError) as error:
        yield fail(
            f"{group}.checks",
            f"not finished: {error}",
            limit="all of them made",
            change="run doctor as root or as the node's account",
        )
