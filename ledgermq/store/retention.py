"""Retention policy, pure: log files to delete, and reasons to keep the others.

Three reasons, one order (the oldest first), whole files: the time is over
(``CommitLog.deleteExpiredFile``; with DLedger an hour more), the store has more bytes than it may,
the disk is too full. Guards say up to where the log is needed; what is needed is never deleted, but
for what only readers want when ``retention.force_clean`` says so.

What a file's last message was stored is taken for the store time of the next file's first message:
later than the last one in it, so nothing goes too early; a copied file's own time tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ledgermq.model.config.amounts import FileSystem, amount
from ledgermq.model.config.settings import ForceClean, RetentionSection
from ledgermq.model.units import HOUR_MS

NOTHING = 2**62
"""A guard that needs nothing of the log."""


class LogFileAge(NamedTuple):
    """One file of the log: its positions, its bytes on disk, and until when it was written."""

    start: int
    end: int
    bytes_on_disk: int
    last_store_ms: int


class Guard(NamedTuple):
    """Who needs the log from ``position`` on.

    Attributes:
        reads: what it needs is to be read (a group, the archive), and not the store's own.
    """

    name: str
    position: int
    setting: str
    reads: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """The store as it is found; ``files`` ascend, and the last one is being written.

    Attributes:
        store_bytes: log, queues and index together, on disk; 0 when no setting asks for it.
        archived: what is below was archived, by all archives and in sealed pieces; None without
            any.
        archive: what has least of it, as `archive NAME`.
        hour: of the day, local time.
        is_dledger: files are kept an hour longer, as DLedger does.
    """

    files: Sequence[LogFileAge]
    guards: Sequence[Guard]
    disk: FileSystem
    store_bytes: int
    archived: int | None
    now_ms: int
    hour: int
    is_dledger: bool
    archive: str = ""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The log is to begin at ``begin``; ``reasons`` by file, and what ``held`` more from going.

    Attributes:
        held_end: end of the file that should go and is held; 0 when none is.
        unarchived: what goes although an archive lacks it, and why; empty when nothing does.
    """

    begin: int
    reasons: tuple[str, ...] = ()
    held: str = ""
    held_end: int = 0
    unarchived: str = ""


def plan(survey: Survey, settings: RetentionSection) -> RetentionPlan:
    """What is to be deleted now."""
    files = survey.files
    begin = files[0].start if files else 0
    reasons: list[str] = []
    freed = 0
    unarchived = ""
    for file in files[:-1]:
        reason, held = _judge(file, survey, settings, freed)
        if held or not reason:
            return RetentionPlan(begin, tuple(reasons), held, file.end if held else 0, unarchived)
        if _is_unarchived(file, survey):
            unarchived = _lost(file, survey, settings, reason)
        begin = file.end
        freed += file.bytes_on_disk
        reasons.append(reason)
    held = _why_no_more(survey, settings, freed)
    return RetentionPlan(begin, tuple(reasons), held, unarchived=unarchived)


def _judge(
    file: LogFileAge, survey: Survey, settings: RetentionSection, freed: int
) -> tuple[str, str]:
    """Why ``file`` should go, and why it may not all the same; empty texts when there is none."""
    reason = _reason(file, survey, settings, freed)
    held = (_waits(file, survey, settings) or _held(file, survey, None)) if reason else ""
    if reason and not held:
        return reason, ""
    pressure = _pressure(survey, settings, freed)
    if not pressure:
        return reason, f"{reason}, but {held}" if held else ""
    forced_held = _held(file, survey, settings.force_clean)
    if not forced_held:
        return pressure, ""
    # What holds a file whose time is over is what an operator has to know, and not that its time
    # is not over.
    return pressure, f"{pressure}, but {held or forced_held}"


def _reason(file: LogFileAge, survey: Survey, settings: RetentionSection, freed: int) -> str:
    """Why the time of ``file`` is over; empty when it is not."""
    disk = survey.disk
    hours = settings.file_reserved_time + (1 if survey.is_dledger else 0)
    if survey.now_ms - file.last_store_ms > hours * HOUR_MS:
        if survey.hour in delete_hours(settings.delete_when):
            return f"older than {hours} h (retention.file_reserved_time)"
        if amount(settings.clean_above).is_passed(disk):
            return (
                f"older than {hours} h, and {disk.used_percent}% of the disk are used"
                f" (retention.clean_above = {settings.clean_above})"
            )
    if settings.bytes_max is not None:
        limit = amount(settings.bytes_max).of(disk.total)
        if survey.store_bytes - freed > limit:
            return (
                f"the store has {survey.store_bytes - freed} bytes of {limit}"
                f" (retention.bytes_max = {settings.bytes_max})"
            )
    return ""


def _pressure(survey: Survey, settings: RetentionSection, freed: int) -> str:
    """Why files go before their time; empty when they need not."""
    if amount(settings.force_above).excess(survey.disk) <= freed:
        return ""
    return (
        f"{survey.disk.used_percent}% of the disk are used, {survey.disk.free} bytes are free"
        f" (retention.force_above = {settings.force_above})"
    )


def _held(file: LogFileAge, survey: Survey, force: ForceClean | None) -> str:
    """Who needs ``file``; empty when nobody does.

    Args:
        force: what may go before its time; None: its time is over.
    """
    if force is ForceClean.NEVER:
        return 'its time is not over (retention.force_clean = "never")'
    for guard in survey.guards:
        if file.end > guard.position and not (guard.reads and force is not None):
            return (
                f"{guard.name} needs the log from {guard.position} on ({guard.setting}),"
                f" and the file ends at {file.end}"
            )
    if force is ForceClean.ARCHIVED and survey.archived is None:
        return 'nothing is archived (retention.force_clean = "archived")'
    if force is ForceClean.ARCHIVED and _is_unarchived(file, survey):
        return _lack(file, survey)
    return ""


def _is_unarchived(file: LogFileAge, survey: Survey) -> bool:
    return survey.archived is not None and file.end > survey.archived


def _lack(file: LogFileAge, survey: Survey) -> str:
    return f"{survey.archive} has the log up to {survey.archived}, and the file ends at {file.end}"


def _waits(file: LogFileAge, survey: Survey, settings: RetentionSection) -> str:
    """What an archive lacks of a file whose time is over, while it is waited for; else empty."""
    if not _is_unarchived(file, survey) or _why_waited_enough(file, survey, settings):
        return ""
    return (
        f"{_lack(file, survey)} (it is waited for: retention.archive_wait_hours ="
        f" {settings.archive_wait_hours}, retention.archive_wait_below ="
        f" {settings.archive_wait_below})"
    )


def _why_waited_enough(file: LogFileAge, survey: Survey, settings: RetentionSection) -> str:
    hours = settings.file_reserved_time + settings.archive_wait_hours
    if survey.now_ms - file.last_store_ms > hours * HOUR_MS:
        return (
            f"it is older than {hours} h (retention.archive_wait_hours ="
            f" {settings.archive_wait_hours})"
        )
    if amount(settings.archive_wait_below).is_passed(survey.disk):
        return (
            f"{survey.disk.used_percent}% of the disk are used (retention.archive_wait_below ="
            f" {settings.archive_wait_below})"
        )
    return ""


def _lost(file: LogFileAge, survey: Survey, settings: RetentionSection, reason: str) -> str:
    """What is said when a file goes that an archive lacks."""
    why = _why_waited_enough(file, survey, settings) or reason
    return f"deleted before it is archived: {_lack(file, survey)}, but {why}"


def _why_no_more(survey: Survey, settings: RetentionSection, freed: int) -> str:
    """Every file but the last one goes: is that enough?"""
    if amount(settings.force_above).excess(survey.disk) > freed and survey.files:
        return (
            f"{survey.disk.used_percent}% of the disk are used (retention.force_above ="
            f" {settings.force_above}), but the log has no file besides the one that is written"
        )
    return ""


def delete_hours(text: str) -> frozenset[int]:
    """Hours of the day that ``retention.delete_when`` names."""
    return frozenset(int(hour) for hour in text.split(";"))
