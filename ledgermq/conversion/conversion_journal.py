"""Conversion journal: the plan of a conversion, how far it is, and the way back.

A conversion has three parts. First everything new is built beside the store, in
``ROOT/ledgermq/conversion/new``, and nothing else is touched. Then the *switch*: a few bytes are
patched, and folders and files change places by renames. Later, when nobody wants to go back, what
was set aside in ``ROOT/ledgermq/conversion/old`` is deleted (``finish``).

``ROOT/ledgermq/conversion.json`` (a checked document) says what was decided before it is done:

    {"version": 1, "kind": "upgrade" | "downgrade", "phase": PHASE, "facts": {…},
     "patches": [{"file": PATH, "offset": 123, "before": HEX, "after": HEX}, …],
     "moves": [[SOURCE, TARGET], …],            paths are relative to ROOT
     "moved": 2}                                how many moves are done; one more may be

| phase | what a crash leaves | what can be done |
|---|---|---|
| preparing | a part of ``new`` | begin again; undo |
| switching | some patches and moves are done | go on; undo |
| switched | all are done | use the store; undo while nothing was written to it; finish |
| undoing | some are undone | go on undoing |
| finishing | a part of ``old`` is deleted | go on deleting |

A journal that is gone says that all is deleted: to finish once more is done at once.

Each patch, each move and each phase is durable before the next begins, and can be repeated.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import NamedTuple, cast

from ledgermq.model.errors import ConfigError, CorruptLogError, refused_as
from ledgermq.model.names.stored_name import path_below
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.disk_sync import make_directories, sync_content, sync_directory

OWN = "ledgermq"
FOLDER = f"{OWN}/conversion"
NEW = f"{FOLDER}/new"
OLD = f"{FOLDER}/old"
SINCE = f"{FOLDER}/since"
_VERSION = 1

Facts = dict[str, int | str]


class ConversionKind(StrEnum):
    """Which way a store is converted; also the command's verb."""

    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"


class Phase(StrEnum):
    """How far a conversion is; see the module's table."""

    PREPARING = "preparing"
    SWITCHING = "switching"
    SWITCHED = "switched"
    UNDOING = "undoing"
    FINISHING = "finishing"


class Patch(NamedTuple):
    """Bytes of one file that the switch changes, in place."""

    file: str
    offset: int
    before: bytes
    after: bytes


class FileRename(NamedTuple):
    """A rename of the switch; paths are relative to the store's root."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Conversion:
    """What the journal says; ``facts`` are the kind's own, numbers and texts by name.

    Invariant: ``0 <= moved <= len(moves)``; the moves before ``moved`` are done, and durable.
    """

    kind: ConversionKind
    phase: Phase
    facts: Facts
    patches: tuple[Patch, ...] = ()
    moves: tuple[FileRename, ...] = ()
    moved: int = 0


def journal_path(root: Path) -> Path:
    """Where the journal of the store in ``root`` is."""
    return root / OWN / "conversion.json"


def read_journal(root: Path) -> Conversion | None:
    """The conversion that the store in ``root`` is in; None when it is in none.

    Raises:
        CorruptLogError: the journal is not whole, or of a version that is not known here.
        StorageError: it cannot be read.
    """
    path = journal_path(root)
    document = read_document(path)
    if document is None:
        return None
    if document.get("version") != _VERSION:
        raise CorruptLogError(
            "journal of a conversion has another version",
            file=str(path),
            version=document.get("version"),
            expected=_VERSION,
        )
    # Its checksum says that we wrote it: the fields are those of ``_write``. Where the whole store
    # is somebody else's, so is this.
    patches = cast("list[dict[str, str | int]]", document["patches"])
    moves = cast("list[list[str]]", document["moves"])
    facts = cast("Facts", document["facts"])
    names = [str(patch["file"]) for patch in patches]
    # A folder is called after the member.
    names += [*chain.from_iterable(moves), f"dledger-{facts.get('self_id')}"]
    for name in names:
        path_below(root, name, said_by=str(path))
    return Conversion(
        ConversionKind(str(document["kind"])),
        Phase(str(document["phase"])),
        facts,
        tuple(
            Patch(
                str(patch["file"]),
                int(patch["offset"]),
                bytes.fromhex(str(patch["before"])),
                bytes.fromhex(str(patch["after"])),
            )
            for patch in patches
        ),
        tuple(FileRename(*pair) for pair in moves),
        cast("int", document["moved"]),
    )


def refuse_unfinished(root: Path) -> None:
    """Refuse a store that is in the middle of a conversion: it is neither the one nor the other.

    Raises:
        ConfigError: the conversion must be resumed or undone first; names the commands.
        CorruptLogError: the journal is not whole.
        StorageError: it cannot be read.
    """
    found = read_journal(root)
    if found is None or found.phase is Phase.SWITCHED:
        return
    verb = f"ledgermq store {found.kind} {root}"
    if found.phase is Phase.UNDOING:
        remedy = f"go on with: {verb} --undo"
    elif found.phase is Phase.FINISHING:
        remedy = f"go on with: {verb} --finish"
    else:
        remedy = f"go on with: {verb}, or go back with: {verb} --undo"
    raise ConfigError(
        f"a conversion of the store was begun and is not done; {remedy}",
        directory=str(root),
        kind=found.kind.value,
        phase=found.phase.value,
    )


def is_finished(root: Path, kind: ConversionKind) -> bool:
    """Whether a conversion of this kind has nothing left to finish, whenever that was.

    No journal is there, and the logs are those that the kind leaves: an old log and a DLedger log,
    or a plain one alone. A store that RocketMQ has upgraded, or that always was plain, looks the
    same, and there is nothing to finish in it either.

    Raises:
        CorruptLogError: the journal is not whole.
        StorageError: it cannot be read.
    """
    if read_journal(root) is not None or not any((root / "commitlog").glob("[0-9]*")):
        return False
    return any(root.glob("dledger-*")) is (kind is ConversionKind.UPGRADE)


def begin(root: Path, kind: ConversionKind, facts: Facts) -> Conversion:
    """Begin, or begin again, to prepare: an empty folder ``new``, and a journal that says so.

    Raises:
        StorageError: the operating system refused.
    """
    conversion = Conversion(kind, Phase.PREPARING, facts)
    make_directories(root / OWN)
    _write(root, conversion)
    _delete(root / FOLDER)
    with refused_as("folder not made", file=root / FOLDER):
        (root / NEW).mkdir(parents=True)
        (root / OLD / OWN).mkdir(parents=True)
        for folder in (OLD, FOLDER, OWN):
            sync_directory(root / folder)
    return conversion


def switch(root: Path, conversion: Conversion) -> Conversion:
    """Do, or go on doing, what turns the store into the other kind; it is durable on return.

    Raises:
        CorruptLogError: a file is not as it was when the conversion was decided.
        StorageError: the operating system refused; to be resumed or undone.
    """
    assert conversion.phase in (Phase.PREPARING, Phase.SWITCHING), conversion.phase
    conversion = replace(conversion, phase=Phase.SWITCHING)
    _write(root, conversion)
    for patch in conversion.patches:
        _patch(root / patch.file, patch.offset, old=patch.before, new=patch.after)
    # What one move takes away a later one may put there again, so each is noted for itself.
    for number in range(conversion.moved, len(conversion.moves)):
        move = conversion.moves[number]
        _move(root / move.source, root / move.target)
        conversion = replace(conversion, moved=number + 1)
        _write(root, conversion)
    conversion = replace(conversion, phase=Phase.SWITCHED)
    _write(root, conversion)
    return conversion


def undo(root: Path, conversion: Conversion) -> None:
    """Go back to the store as it was, and forget the conversion; it is durable on return.

    What was written to the store since is lost: who calls has looked that there is nothing.

    Raises:
        CorruptLogError: a file is not as the conversion has left it.
        StorageError: the operating system refused; to be called again.
    """
    assert conversion.phase is not Phase.FINISHING, conversion
    if conversion.phase is Phase.PREPARING:
        conversion = replace(conversion, patches=(), moves=())
    elif conversion.phase is Phase.SWITCHING and conversion.moved < len(conversion.moves):
        # The crash may have come between a move and its note.
        next_one = conversion.moves[conversion.moved]
        done = not (root / next_one.source).exists() and (root / next_one.target).exists()
        conversion = replace(conversion, moved=conversion.moved + done)
    conversion = replace(conversion, phase=Phase.UNDOING)
    _write(root, conversion)
    for number in reversed(range(conversion.moved)):
        move = conversion.moves[number]
        source, target = root / move.source, root / move.target
        if source.exists() and target.exists():
            # The store was opened since, and what was set aside was made anew.
            _move(source, root / SINCE / str(number))
        _move(target, source)
        conversion = replace(conversion, moved=number)
        _write(root, conversion)
    for patch in reversed(conversion.patches):
        _patch(root / patch.file, patch.offset, old=patch.after, new=patch.before)
    _forget(root)


def finish(root: Path, conversion: Conversion) -> None:
    """Delete what was set aside, and forget the conversion: there is no way back then.

    Raises:
        StorageError: the operating system refused; to be called again.
    """
    assert conversion.phase in (Phase.SWITCHED, Phase.FINISHING), conversion.phase
    _write(root, replace(conversion, phase=Phase.FINISHING))
    _forget(root)


def _forget(root: Path) -> None:
    _delete(root / FOLDER)
    path = journal_path(root)
    with refused_as("journal not deleted", file=path):
        path.unlink(missing_ok=True)
        sync_directory(path.parent)


def _write(root: Path, conversion: Conversion) -> None:
    write_document(
        journal_path(root),
        {
            "version": _VERSION,
            "kind": conversion.kind.value,
            "phase": conversion.phase.value,
            "facts": conversion.facts,
            "patches": [
                {
                    "file": patch.file,
                    "offset": patch.offset,
                    "before": patch.before.hex(),
                    "after": patch.after.hex(),
                }
                for patch in conversion.patches
            ],
            "moves": [list(move) for move in conversion.moves],
            "moved": conversion.moved,
        },
    )


def _patch(path: Path, offset: int, *, old: bytes, new: bytes) -> None:
    """Write ``new`` where ``old`` stands; a part of ``new`` may stand there already."""
    assert len(old) == len(new)
    with refused_as("file not patched", file=path):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = os.pread(fd, len(new), offset)
            torn = len(found) == len(new) and all(
                byte in pair for byte, *pair in zip(found, old, new, strict=True)
            )
            if not torn:
                raise CorruptLogError(
                    "file was changed since the conversion was decided",
                    file=str(path),
                    offset=offset,
                    found=found.hex(),
                    expected=old.hex(),
                )
            if found != new:
                os.pwrite(fd, new, offset)
            sync_content(fd)
        finally:
            os.close(fd)


def _move(source: Path, target: Path) -> None:
    """Rename, unless that was done already; both folders are durable on return."""
    with refused_as("not renamed", file=source):
        if source.exists():
            if target.exists():
                raise CorruptLogError(
                    "both ends of a move are there", source=str(source), target=str(target)
                )
            make_directories(target.parent)
            source.rename(target)
        elif not target.exists():
            raise CorruptLogError(
                "neither end of a move is there", source=str(source), target=str(target)
            )
        sync_directory(target.parent)
        sync_directory(target.parent.parent)
        if source.parent.exists():
            sync_directory(source.parent)


def _delete(folder: Path) -> None:
    with refused_as("folder not deleted", file=folder):
        if folder.exists():
            shutil.rmtree(folder)
            sync_directory(folder.parent)
