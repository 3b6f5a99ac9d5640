"""Queue ends in the snapshots of the broker's tables.

A leader's snapshot carries what its node knows of the ends (``store/queues/queue_ends.py``). A
member whose own table lacks a queue, as one that an older version has filled without any, keeps
what it was told in ``ROOT/ledgermq/queue-ends-told``, where its dispatcher looks. Older versions
pass the table.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from ledgermq.model.errors import CorruptLogError, StorageError
from ledgermq.rules.tables.documents import Document
from ledgermq.store.queues.queue_ends import (
    NAME,
    Queue,
    QueueEnds,
    ends_of_document,
    ends_path,
    read_queue_ends,
    told_ends_path,
    write_queue_ends,
)

logger = logging.getLogger(__name__)


class ToldEnds:
    """Owned by the broker process, which alone writes the file of what was told."""

    def __init__(self, root: Path) -> None:
        """Nothing is read yet.

        Args:
            root: of the store.
        """
        self._own = ends_path(root)
        self._told = told_ends_path(root)

    def for_snapshot(self) -> Mapping[str, dict[str, object]]:
        """The table to add to a snapshot's; empty where the log says all ends itself."""
        known = self._known()
        return {} if known is None else {NAME: known.to_document()}

    def take(self, document: Document) -> bool:
        """What a snapshot says; whether it was more than the node knows, and is kept.

        Raises:
            StorageError: it could not be kept.
        """
        try:
            told = ends_of_document(document, file=f"{NAME} of a snapshot")
        except CorruptLogError as error:
            logger.error("queue ends of a snapshot passed: %s", error)
            return False
        known = self._known()
        if known is None or told.ends.keys() <= known.ends.keys():
            # Without a table of its own, nothing is gone from this node's log.
            return False
        write_queue_ends(self._told, told)
        logger.info("ends of queues told: queues=%d position=%d", len(told.ends), told.position)
        return True

    def known(self) -> Mapping[Queue, int]:
        """The node's own table; empty where it has none."""
        known = self._known()
        return {} if known is None else known.ends

    def _known(self) -> QueueEnds | None:
        try:
            return read_queue_ends(self._own)
        except (CorruptLogError, StorageError) as error:
            logger.error("table of queue ends passed: %s", error)
            return None
