"""Checks of a store's directory against the settings, and of its own files; read-only."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ledgermq.conversion.last_backup import NAME as LAST_BACKUP
from ledgermq.conversion.last_backup import STREAM_NAME
from ledgermq.conversion.restore_note import NAME as RESTORE_NOTE
from ledgermq.conversion.rocksdb_tables import ASIDE as ROCKSDB_ASIDE
from ledgermq.conversion.understudy_note import NAME as UNDERSTUDY_NOTE
from ledgermq.conversion.understudy_note import STATUS_NAME as UNDERSTUDY_STATUS
from ledgermq.daemon.store_lock import holder_of
from ledgermq.formats.findings import START_MENDS, Finding, Severity
from ledgermq.formats.index_file import ITEMS_DEFAULT, SLOTS_DEFAULT, IndexLayout
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.members.peer_identity import KnownPeers, identity_of
from ledgermq.members.roster import RosterFile, read_group
from ledgermq.model.config.settings import Settings
from ledgermq.model.errors import ConfigError, CorruptLogError, refused_as
from ledgermq.model.names.own_tables import OWN_TABLES
from ledgermq.process.control import check_path
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.store_kind import check_kind, check_origin
from ledgermq.raft.term_slots import SLOT_SIZE, SLOT_USED, StoredState, decode_slot, decode_slots
from ledgermq.rules.state.state_tables import FILES
from ledgermq.sessions.keys.peer_keys import load_keys
from ledgermq.store.files.file_names import is_index_name, own_names
from ledgermq.store.files.kept_aside import FOLDER, kept_in
from ledgermq.store.files.properties_file import decode_current_term
from ledgermq.store.files.small_file import read_file
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.index.tag_items import TAGS_NAME
from ledgermq.store.queues.queue_files import found_file_size
from ledgermq.store.recovery.log_damage import damage_path, read_damage
from ledgermq.store.recovery.log_scan import load_files
from ledgermq.store.state_mark import NAME as STATE_MARK
from ledgermq.store.wheel_files import ASIDE as WHEEL_ASIDE
from ledgermq.store.wheel_files import HANDED


class FoundStore(NamedTuple):
    """What is in the directory; a size is ``None`` when there is no file to have it."""

    root: Path
    log: str
    log_files: int
    log_file_size: int | None
    queue_file_size: int | None
    index_file_size: int | None
    left_by_crash: bool

    @property
    def text(self) -> str:
        """The log that was found, in one sentence."""
        if not self.log_files:
            return f"no log yet; a {self.log} log will be made"
        crash = ", left by a crash" if self.left_by_crash else ""
        return f"{self.log} log of {self.log_files} files of {self.log_file_size} bytes{crash}"


def check_directory(settings: Settings) -> FoundStore:
    """What the settings' directory holds, when a node can be started there.

    Raises:
        ConfigError: another kind of log, another member's, or files of other sizes than the
            settings say; a runtime directory that cannot hold sockets; keys of the group that
            are missing or wrong; or a store of RocketMQ 5 that a node would lose something of.
        CorruptLogError: the files are not those of a log.
        StorageError: the directory cannot be read.
    """
    check_origin(StorePaths.of(settings), settings)
    return check_fit(settings)


def check_fit(settings: Settings) -> FoundStore:
    """What the settings' directory holds, when a node can be started there, whatever of it is
    RocketMQ 5's; raises as ``check_directory``.
    """
    check_path(RuntimePaths(settings.listen.runtime_dir).control)
    load_keys(settings)
    return found_store(settings)


def found_store(settings: Settings) -> FoundStore:
    """What the settings' directory holds, whoever has written it; raises as above."""
    paths = StorePaths.of(settings)
    with refused_as("directory not read", why="within", path=paths.root):
        return _check(settings, paths)


def _check(settings: Settings, paths: StorePaths) -> FoundStore:
    store = settings.store
    check_kind(paths, settings)
    log = load_files(paths.data, file_size=None, default_size=0)
    if log.starts:
        _compare("mapped_file_size_commit_log", store.mapped_file_size_commit_log, log.file_size)
    if paths.index is not None:
        load_files(paths.index, file_size=None, default_size=0)
    queue_size = found_file_size(paths.consume_queues)
    if queue_size is not None:
        wanted = store.mapped_file_size_consume_queue
        # RocketMQ rounds the setting up to whole units.
        rounded = None if wanted is None else -(-wanted // UNIT_SIZE) * UNIT_SIZE
        _compare("mapped_file_size_consume_queue", rounded, queue_size)
    index_size = None
    if store.message_index_enable:
        layout = IndexLayout(
            slots=store.max_hash_slot_num or SLOTS_DEFAULT,
            items=store.max_index_num or ITEMS_DEFAULT,
        )
        for name in own_names(paths.root / "index", is_index_name):
            index_size = (paths.root / "index" / name).stat().st_size
            _compare("max_hash_slot_num, store.max_index_num", layout.file_size, index_size)
    return FoundStore(
        root=paths.root,
        log=store.log.value,
        log_files=len(log.starts),
        log_file_size=log.file_size if log.starts else None,
        queue_file_size=queue_size,
        index_file_size=index_size,
        # A node that runs has the marker, too.
        left_by_crash=(paths.root / "abort").exists() and not holder_of(paths.root),
    )


def _compare(setting: str, expected: int | None, found: int) -> None:
    if expected is not None and expected != found:
        raise ConfigError(
            "files of the store have another size than the settings say",
            setting=f"store.{setting}",
            expected=expected,
            found=found,
        )


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
        TAGS_NAME,
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
        UNDERSTUDY_NOTE,
        UNDERSTUDY_STATUS,
        WHEEL_ASIDE,
        ROCKSDB_ASIDE,
        HANDED,
        *OWN_TABLES,
        *(f"{name}.bak" for name in OWN_TABLES),
    }
)
"""What may stand in the folder; the text of ``lock`` is a process id, and is not looked at."""

_LOOK = "a start could not read this table, and took its copy: look at it, then delete it"
_NO_TERM = "see docs/operating/what-to-do.md, «Term and vote cannot be read»"
_BY_HAND = "see docs/operating/check-and-repair.md"


def check_own_files(root: Path, dledger: Path | None) -> list[Finding]:
    """Check the files under ``root/ledgermq`` that only a node understands, and ``currterm``.

    Term and vote, identity, peers and members: each carries CRCs. DLedger's ``currterm`` mirrors
    the first of them, and is compared with it.

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
