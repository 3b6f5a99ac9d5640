"""Note of an understudy: a folder follows a RocketMQ master, and is no node's until it is promoted.

``ROOT/ledgermq/understudy.json`` is a checked document. It is made once, before the first byte of
the log, and changed once, when the folder is promoted:

    {"version": 1, "master": "10.0.0.1:10912", "remoting": "10.0.0.1:10911", "product": 5,
     "log_file_size": 1073741824, "config": "brokerName=a\\n…", "promoted_at_ms": null}
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from ledgermq.model.errors import ConfigError, CorruptLogError
from ledgermq.store.files.checked_document import read_document, write_document
from ledgermq.store.files.disk_sync import make_directories

NAME = "understudy.json"
STATUS_NAME = "understudy-status"
"""What the process that follows says of itself, anew each second; a checked document."""

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderstudyNote:
    """What the note says.

    Attributes:
        master: host and port where the master waits for slaves (``haListenPort``).
        remoting: host and port of its clients (``listenPort``), which tells its tables.
        product: major version of RocketMQ.
        log_file_size: ``mappedFileSizeCommitLog`` of the master, bytes.
        config: its settings as it told them (``broker.conf``).
        promoted_at_ms: when the folder became a node's store, epoch ms; None: it follows.
    """

    master: str
    remoting: str
    product: int
    log_file_size: int
    config: str
    promoted_at_ms: int | None = None


def write_note(root: Path, note: UnderstudyNote) -> None:
    """Write the note of the folder ``root``; durable on return.

    Raises:
        StorageError: the operating system refused.
    """
    make_directories(root / "ledgermq")
    write_document(root / "ledgermq" / NAME, {"version": _VERSION, **asdict(note)})


def read_note(root: Path) -> UnderstudyNote | None:
    """The note of the folder ``root``; None: it is no understudy's, and never was.

    Raises:
        CorruptLogError: the note is not whole, or of another version.
        StorageError: it cannot be read.
    """
    path = root / "ledgermq" / NAME
    document = read_document(path)
    if document is None:
        return None
    texts = [document.get(key) for key in ("master", "remoting", "config")]
    numbers = [document.get(key) for key in ("product", "log_file_size")]
    promoted = document.get("promoted_at_ms")
    if (
        document.get("version") != _VERSION
        or not all(isinstance(text, str) for text in texts)
        or not all(isinstance(number, int) and number > 0 for number in numbers)
        or not (promoted is None or isinstance(promoted, int))
    ):
        raise CorruptLogError("the note of an understudy is not understood", file=str(path))
    master, remoting, config = map(str, texts)
    product, size = (number for number in numbers if isinstance(number, int))
    return UnderstudyNote(
        master=master,
        remoting=remoting,
        product=product,
        log_file_size=size,
        config=config,
        promoted_at_ms=promoted,
    )


def refuse_understudy(root: Path) -> None:
    """Refuse a folder that follows a master: what a node stored there would be another log.

    Raises:
        ConfigError: it was not promoted.
        CorruptLogError: the note is not whole.
        StorageError: it cannot be read.
    """
    note = read_note(root)
    if note is not None and note.promoted_at_ms is None:
        raise ConfigError(
            "the directory is an understudy's, which follows a RocketMQ master: stop the master,"
            " end ledgermq understudy run, and promote it (ledgermq understudy promote)",
            directory=str(root),
            master=note.master,
        )
