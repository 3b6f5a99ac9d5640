"""Kind of log in a store directory, and whose it is, against the settings."""

from __future__ import annotations

from pathlib import Path

from ledgermq.conversion.conversion_journal import refuse_unfinished
from ledgermq.conversion.restore_note import refuse_unfinished_restore
from ledgermq.conversion.understudy_note import refuse_understudy
from ledgermq.model.config.settings import LogKind, Settings
from ledgermq.model.errors import ConfigError
from ledgermq.store.files.file_names import starts_in
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.origin import refuse_strange


def _check_witness(paths: StorePaths) -> None:
    found = [
        path.name
        for path in (paths.root / "commitlog", *paths.root.glob("dledger-*"))
        if _holds_a_log(path)
    ]
    # It may have voted before it had any message.
    found += [paths.term.name] if paths.term.exists() else []
    if found:
        raise ConfigError(
            "the directory holds a log or a vote, but the settings say that this node is a witness"
            " without bodies: remove the member from the group, and begin with an empty directory",
            directory=str(paths.root),
            found=sorted(found),
            setting="node.witness",
        )
    # Its file is there before its disk is known to anybody (``witness_process.run``).
    if paths.identity.exists() and not paths.witness.exists():
        raise ConfigError(
            "the file with all that this witness has promised is gone, and without it it could"
            " elect who lacks messages: remove the member from the group, and begin with an empty"
            " directory",
            directory=str(paths.root),
            missing=paths.witness.name,
        )


def _holds_a_log(folder: Path) -> bool:
    """Whether ``folder`` has a log's files, or DLedger's own beside them."""
    own = (folder / name for name in ("data", "index", "checkpoint", "currterm"))
    return bool(starts_in(folder)) or any(path.exists() for path in own)


def check_kind(paths: StorePaths, settings: Settings) -> None:
    """Look whether the directory holds the log that the settings name, or none; touch nothing.

    Raises:
        ConfigError: it holds another kind of log, or another member's; or it is in the middle of a
            conversion from one kind to the other, or of a restore; or it follows a RocketMQ master
            (``ledgermq understudy``). Names the command that helps.
        CorruptLogError, StorageError: a note of these cannot be read.
    """
    refuse_unfinished_restore(paths.root)
    refuse_understudy(paths.root)
    refuse_unfinished(paths.root)
    if settings.node.witness:
        _check_witness(paths)
        return
    if paths.witness.exists():
        raise ConfigError(
            "the directory is a witness's, and has no messages: a node that forgot what it has"
            " promised could elect who lacks messages. Remove the member from the group, and begin"
            " with an empty directory",
            directory=str(paths.root),
            found=paths.witness.name,
            setting="node.witness",
        )
    plain = paths.root / "commitlog"
    dledger = sorted(path.name for path in paths.root.glob("dledger-*"))
    if settings.store.log is LogKind.COMMITLOG:
        if dledger:
            raise ConfigError(
                "the directory holds a DLedger log, but the settings say a plain CommitLog:"
                f" ledgermq store downgrade {paths.root} makes a plain one of it",
                directory=str(paths.root),
                found=dledger,
                setting="store.log",
            )
        return
    if starts_in(paths.data):
        return
    if dledger and paths.data.parent.name not in dledger:
        raise ConfigError(
            "the directory belongs to another member of the group",
            directory=str(paths.root),
            found=dledger,
            setting="node.self_id",
        )
    if starts_in(plain):
        node = settings.node
        raise ConfigError(
            "the directory holds a plain CommitLog, but the settings say a DLedger log: ledgermq"
            f" store upgrade {paths.root} --group {node.group} --self-id {node.self_id} makes the"
            " old part of one of it",
            directory=str(paths.root),
            setting="store.log",
        )


def check_origin(paths: StorePaths, settings: Settings) -> None:
    """Look whether the directory is one of RocketMQ 5 that a node would lose something of; touch
    nothing. A store that is ours costs a few looks at names.

    Raises:
        ConfigError: it is, and ``store.leave_behind`` does not name it; says what, and what to do.
        StorageError: the directory cannot be read.
    """
    if settings.node.witness or paths.witness.exists():
        return
    is_dledger = settings.store.log is LogKind.DLEDGER and paths.data.parent.is_dir()
    refuse_strange(
        paths.root,
        self_id=settings.node.self_id if is_dledger else None,
        left_behind=settings.store.leave_behind,
    )
