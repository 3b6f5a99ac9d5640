"""Offline check of the files under ``ROOT/ledgermq/`` that only a node understands.

Term and vote, identity, peers and members: each carries CRCs. DLedger's ``currterm`` mirrors the
first of them, and is compared with it.
"""

from __future__ import annotations

from pathlib import Path

from ledgermq.conversion.last_backup import NAME as LAST_BACKUP
from ledgermq.conversion.last_backup import STREAM_NAME
from ledgermq.conversion.restore_note import NAME as RESTORE_NOTE
from ledgermq.formats.findings import START_MENDS, Finding, Severity
from ledgermq.members.peer_identity import KnownPeers, identity_of
from ledgermq.members.roster import RosterFile, read_group
from ledgermq.model.errors import CorruptLogError
from ledgermq.model.names.own_tables import OWN_TABLES
from ledgermq.raft.term_slots import SLOT_SIZE, SLOT_USED, StoredState, decode_slot, decode_slots
from ledgermq.rules.state.state_tables import FILES
from ledgermq.store.files.kept_aside import FOLDER, kept_in
from ledgermq.store.files.properties_file import decode_current_term
from ledgermq.store.files.small_file import read_file
from ledgermq.store.recovery.log_damage import damage_path, read_damage
from ledgermq.store.state_mark import NAME as STATE_MARK

KNOWN = frozenset(
    {
        "term",
        "witness",
        "told-group",
        "identity",
        "peers",
        "members",
        "keys",
        "log-checkpoint",
        "log-damage",
        "dispatch-checkpoint",
        "queue-ends",
        "queue-ends-told",
        "shipped",
        "replaced",
        "set-aside",
        "rebuild",
        "conversion",
        "conversion.json",
        "lock",
        "reserve",
        STATE_MARK,
        "derived",
        LAST_BACKUP,
        STREAM_NAME,
        RESTORE_NOTE,
        *OWN_TABLES,
        *(f"{name}.bak" for name in OWN_TABLES),
    }
)
"""What may stand in the folder; the text of ``lock`` is a process id, and is not looked at."""

_LOOK = "a start could not read this table, and took its copy: look at it, then delete it"
_NO_TERM = "see docs/operating/what-to-do.md, «Term and vote cannot be read»"
_BY_HAND = "see docs/operating/check-and-repair.md"


def check_own_files(root: Path, dledger: Path | None) -> list[Finding]:
    """Everything in ``root/ledgermq`` that ``store`` does not know, and ``currterm``.

    Raises:
        StorageError: a file cannot be read.
    """
    own = root / "ledgermq"
    findings: list[Finding] = []
    for path in sorted(own.iterdir()) if own.is_dir() else ():
        if path.name not in KNOWN and path.suffix != ".tmp":
            name = str(path.relative_to(root))
            findings.append(Finding(Severity.NOTE, name, None, "unknown file"))
    findings += [
        Finding(Severity.NOTE, f"ledgermq/{FOLDER}/{name}", None, "kept aside", remedy=_LOOK)
        for name in kept_in(own / FOLDER)
        if name.removeprefix("ledgermq-").removeprefix("config-").startswith(FILES)
    ]
    stored = _check_term(own / "term", root, findings)
    # Of a running node, one of the two may just have been written.
    if dledger is not None and not (root / "abort").exists():
        _check_current_term(dledger / "currterm", root, stored, findings)
    _check_damage(root, findings)
    if (own / RESTORE_NOTE).exists():
        name, text = f"ledgermq/{RESTORE_NOTE}", "a restore was begun and is not done"
        remedy = "run the same ledgermq backup restore again"
        findings.append(Finding(Severity.DAMAGE, name, None, text, remedy=remedy))
    for name, read in (
        ("identity", identity_of),
        ("peers", KnownPeers),
        ("members", RosterFile),
        ("told-group", read_group),
    ):
        path = own / name
        if not path.exists():
            continue
        try:
            read(path)
        except CorruptLogError as error:
            place = str(path.relative_to(root))
            findings.append(Finding(Severity.DAMAGE, place, 0, error.message, remedy=_BY_HAND))
    return findings


def _check_damage(root: Path, findings: list[Finding]) -> None:
    """The mark of a member that lost what was durable, and has not got it back yet."""
    path = damage_path(root)
    try:
        damage = read_damage(path)
    except CorruptLogError as error:
        what = error.message
    else:
        if damage is None:
            return
        what = f"the log lacks what it once had: {damage.describe()}"
    findings.append(
        Finding(Severity.DAMAGE, str(path.relative_to(root)), None, what, remedy=_BY_HAND)
    )


def _check_term(path: Path, root: Path, findings: list[Finding]) -> StoredState | None:
    content = read_file(path)
    if not content:
        return None
    name = str(path.relative_to(root))
    try:
        stored = decode_slots(content)
    except CorruptLogError as error:
        findings.append(Finding(Severity.DAMAGE, name, 0, error.message, remedy=_NO_TERM))
        return None
    for at in (0, SLOT_SIZE):
        slot = content[at : at + SLOT_SIZE]
        if any(slot) and decode_slot(slot) is None:
            text = "one of the two slots is not whole; the other one counts"
            findings.append(Finding(Severity.DERIVED, name, at, text, remedy=START_MENDS))
        elif any(slot[SLOT_USED:]):
            text = "byte that no field uses is not zero"
            findings.append(Finding(Severity.NOTE, name, at + SLOT_USED, text))
    if any(content[2 * SLOT_SIZE :]):
        text = "bytes behind both slots"
        findings.append(Finding(Severity.NOTE, name, 2 * SLOT_SIZE, text))
    return stored


def _check_current_term(
    path: Path, root: Path, stored: StoredState | None, findings: list[Finding]
) -> None:
    content = read_file(path)
    if content is None:
        return
    name = str(path.relative_to(root))
    try:
        found = decode_current_term(content, file=name)
    except CorruptLogError as error:
        findings.append(Finding(Severity.DAMAGE, name, 0, error.message, remedy=_NO_TERM))
        return
    if stored is None:
        return
    ours = (stored.state.term, stored.state.vote)
    if ours != (found.term, found.vote):
        # A RocketMQ broker that had the directory leaves a higher one, which counts.
        text = "term and vote are not those of ledgermq/term"
        findings.append(
            Finding(
                Severity.DERIVED,
                name,
                0,
                text,
                str(ours),
                str((found.term, found.vote)),
                START_MENDS,
            )
        )
