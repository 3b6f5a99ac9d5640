"""Names of a store's files: 20 digits of a first position, or 17 of a local time (index files).

One rule for all of its folders: what has another name is somebody else's (``lost+found`` of a
mount, ``.nfs…``, ``.DS_Store``, an editor's copy), and is left where it is. Nobody opens it, counts
it, moves it or takes it for damage; who writes the folder says once in its log that it is there
(``tell_foreign``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ledgermq.model.limits import TOPIC_NAME, TOPIC_SIZE_MAX

logger = logging.getLogger(__name__)

NAME_SIZE = 20
INDEX_NAME_SIZE = 17
TOLD_MAX = 3
LIGHT_PREFIX = "%LMQ%"
"""What the names of RocketMQ's light queues begin with."""


def file_name(position: int) -> str:
    """RocketMQ's name of the file that begins at ``position``."""
    return f"{position:020d}"


def is_position_name(name: str) -> bool:
    """Whether a file of this name can be one of a log, a queue, or DLedger's index."""
    return len(name) == NAME_SIZE and name.isascii() and name.isdigit()


def is_index_name(name: str) -> bool:
    """Whether a file of this name can be one of the index of keys."""
    return len(name) == INDEX_NAME_SIZE and name.isascii() and name.isdigit()


def is_topic_folder(name: str) -> bool:
    """Whether a folder below ``consumequeue/`` can be a topic's; RocketMQ names light queues freely
    behind ``%LMQ%``.
    """
    return TOPIC_NAME.fullmatch(name) is not None or name.startswith("%")


def is_topic_name(name: str) -> bool:
    """Whether a topic's folder has the name of a topic that can be here. What else there is, as a
    light queue, is RocketMQ's alone: its units are of other topics' messages.
    """
    is_legal = TOPIC_NAME.fullmatch(name) is not None and len(name) <= TOPIC_SIZE_MAX
    return is_legal and not name.startswith(LIGHT_PREFIX)


def is_queue_folder(name: str) -> bool:
    """Whether a folder below a topic's can be a queue's."""
    return name.isascii() and name.isdigit()


def is_of_others(name: str) -> bool:
    """Whether a folder of any names, that only we use, may have this one nevertheless: a file
    system's ``lost+found``, or a hidden one, as tools make them.
    """
    return name == "lost+found" or name.startswith(".")


def own_names(
    folder: Path,
    is_own: Callable[[str], bool] = is_position_name,
    *,
    foreign: list[Path] | None = None,
) -> list[str]:
    """Names in ``folder`` that are the store's, ascending; none where there is no such folder.

    Args:
        foreign: gets the paths of all others.

    Raises:
        OSError: the folder cannot be read.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return []
    if foreign is not None:
        foreign += [folder / name for name in names if not is_own(name)]
    return [name for name in names if is_own(name)]


def starts_in(folder: Path) -> list[int]:
    """First positions of the files in ``folder``, ascending; none where there is no such folder."""
    return [int(name) for name in own_names(folder)]


def topic_folders(
    root: Path, *, foreign: list[Path] | None = None
) -> Iterator[tuple[Path, list[str]]]:
    """Each topic's folder below ``root``, a ``consumequeue/``, and names of its queues' folders.

    Args:
        foreign: gets the paths of what is no topic's and no queue's.

    Raises:
        OSError: a folder cannot be read.
    """
    for topic in own_names(root, is_topic_folder, foreign=foreign):
        try:
            yield root / topic, own_names(root / topic, is_queue_folder, foreign=foreign)
        except NotADirectoryError:
            if foreign is not None:
                foreign.append(root / topic)


def queue_folders(root: Path, *, foreign: list[Path] | None = None) -> Iterator[Path]:
    """Folders ``topic/queue`` below ``root``, a ``consumequeue/``; args and errors as above."""
    for topic, names in topic_folders(root, foreign=foreign):
        for name in names:
            if (topic / name).is_dir():
                yield topic / name
            elif foreign is not None:
                foreign.append(topic / name)


def queues_of_no_topic(root: Path) -> list[Path]:
    """Folders below ``root``, a ``consumequeue/``, that are as a topic's, of names that no topic
    can have here; errors as above.
    """
    names = own_names(root, is_topic_folder)
    return [root / name for name in names if not is_topic_name(name) and (root / name).is_dir()]


def queue_files(root: Path) -> Iterator[Path]:
    """The files of all queues below ``root``, a ``consumequeue/``; errors as above."""
    for folder in queue_folders(root):
        yield from (folder / name for name in own_names(folder))


def tell_foreign(paths: Sequence[Path]) -> None:
    """Say in the log that these are left where they are; nothing where there are none."""
    if paths:
        logger.warning("no files of the store, left where they are: %s", _shown(paths))


def tell_queues_of_no_topic(paths: Sequence[Path]) -> None:
    """Say in the log that these are left alone; nothing where there are none."""
    if paths:
        logger.warning(
            "queues of no topic here, as light queues, are left alone: count=%d %s",
            len(paths),
            _shown(paths),
        )


def _shown(paths: Sequence[Path]) -> str:
    # RocketMQ takes any bytes for the name of a light queue.
    shown = ", ".join(ascii(str(path))[1:-1] for path in paths[:TOLD_MAX])
    return shown + (f" and {len(paths) - TOLD_MAX} more" if len(paths) > TOLD_MAX else "")
