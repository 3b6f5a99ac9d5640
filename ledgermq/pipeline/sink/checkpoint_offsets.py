"""Offsets of a batch in Spark's checkpoint: what the query's sources have consumed for a group.

Spark writes them before it runs the batch, and runs it again with the same ones. The file has a
line with the version of its form, one with settings, and one for each source:

    CHECKPOINT/offsets/BATCH    v1
                                {"batchWatermarkMs": ...}
                                {"orders": {"0": 800}, "@group": {"group": ..., "from": ...}}

"""

from __future__ import annotations

import json
from itertools import zip_longest
from pathlib import Path
from typing import NoReturn

from ledgermq.client.staging import ConsumedQueues
from ledgermq.model.errors import ConfigError
from ledgermq.pipeline.queue_ranges import CONSUMER, Queue, checkpoint_table, queue_table

VERSION = "v1"
FILE_SIZE_MAX = 16 * 1024 * 1024
_OPTION = "commitOffsets"


def consumed_by(checkpoint: Path, batch: int) -> ConsumedQueues:
    """What a batch has consumed, of all sources of its query that have a group.

    Raises:
        ConfigError: no source has one, they have several, or two of them read one queue; or the
            checkpoint is not where the driver sees it, or of a form that is not known here.
    """
    path = checkpoint / "offsets" / str(batch)
    before = path.with_name(str(batch - 1))
    lines_before = _sources_in(before) if before.exists() else []
    groups: set[str] = set()
    queues: dict[Queue, tuple[int | None, int]] = {}
    for line, line_before in zip_longest(_sources_in(path), lines_before):
        if line is None:
            break
        document = _document_in(path, line)
        consumer = document.get(CONSUMER)
        if consumer is None:
            continue
        if not isinstance(consumer, dict) or not isinstance(consumer.get("group"), str):
            _refuse(path, "not a group and where the batch begins", str(consumer))
        groups.add(consumer["group"])
        begins = queue_table(consumer.get("from"), option=_OPTION)
        ends = checkpoint_table(document, option=_OPTION)
        twice = sorted(ends.keys() & queues.keys())
        if twice:
            topic, queue_id = twice[0]
            raise ConfigError(
                "two sources of the query consume one queue for a group",
                option=_OPTION,
                topic=topic,
                queueId=queue_id,
            )
        if line == line_before:
            # The source had nothing new, and says once more what the batch before has consumed.
            begins = ends
        queues |= {queue: (begins.get(queue), end) for queue, end in ends.items()}
    if len(groups) != 1:
        raise ConfigError(
            "sources of the query need one group to commit offsets for: give them the option"
            " `group`, the same to all",
            option=_OPTION,
            groups=sorted(groups),
        )
    return ConsumedQueues(groups.pop(), queues)


def _sources_in(path: Path) -> list[str]:
    """The lines of the query's sources."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise ConfigError(
            "offsets of the batch cannot be read: the checkpoint must be in a folder that the"
            " driver sees under its name",
            option=_OPTION,
            file=str(path),
            reason=error.strerror,
        ) from error
    if len(content) > FILE_SIZE_MAX:
        _refuse(path, f"file of more than {FILE_SIZE_MAX} bytes", "")
    version, *lines = content.decode(errors="replace").split("\n")
    if version != VERSION:
        _refuse(path, "form of the file is not known", version)
    return [line for line in lines[1:] if line]


def _document_in(path: Path, line: str) -> dict[str, object]:
    """The offsets of one source; empty where they are no object, as of other sources."""
    try:
        document = json.loads(line)
    except json.JSONDecodeError:
        # "-" of a source without offsets, or a form of another source's own.
        return {}
    return document if isinstance(document, dict) else {}


def _refuse(path: Path, what: str, found: str) -> NoReturn:
    raise ConfigError(
        f"offsets of the batch cannot be read: {what}",
        option=_OPTION,
        file=str(path),
        found=found[:200],
    )
