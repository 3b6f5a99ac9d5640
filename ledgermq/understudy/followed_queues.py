"""Followed queues: ConsumeQueues and Index of the received log, as a node's dispatcher builds them.

They are derived: what a death leaves unfinished is built again from the log at the next start.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from ledgermq.dispatcher.log_spans import LogSpans
from ledgermq.model.config.settings import StoreSection
from ledgermq.model.ids import Position
from ledgermq.store.files.disk_sync import make_folder
from ledgermq.store.queues.batch_topics import batch_topics
from ledgermq.store.queues.dispatch_build import DispatchBuilder
from ledgermq.understudy.received_log import ReceivedLog


class FollowedQueues:
    """Owned by the process that follows, beside the log; opened when that has begun."""

    def __init__(
        self, section: StoreSection, log: ReceivedLog, *, with_tags: bool, tables_position: int
    ) -> None:
        """Find where to go on, and take away what the log does not have.

        Args:
            section: sizes as the master has them.
            with_tags: the index has items of tags, as RocketMQ 5 makes them.
            tables_position: topics of messages before it were in the table when these queues were
                built. What is behind it may be of a topic that is known now to have queues of
                batches: it is dispatched again.

        Raises:
            ConfigError: the files there have other sizes.
            StorageError: the operating system refused.
        """
        assert log.first is not None
        root = section.path_root_dir
        make_folder(root / "consumequeue")
        if section.message_index_enable:
            make_folder(root / "index")
        self.of_batches = batch_topics(root)
        self._spans = LogSpans(log.family)
        self._builder = DispatchBuilder.open(
            section,
            log_start=log.first,
            log_end=log.durable,
            published=None,
            log=log.family,
            with_tags=with_tags,
            again_from=Position(tables_position) if self.of_batches else None,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flush")
        self._flush: Future[None] | None = None

    @property
    def position(self) -> Position:
        """All messages before it are in the queues."""
        return self._builder.position

    def build(self, end: Position) -> None:
        """Dispatch all messages before ``end``, which are durable.

        Raises:
            CorruptLogError: the log is not what was received.
            StorageError: the operating system refused.
        """
        builder = self._builder
        while builder.position < end:
            span = self._spans.span(builder.position)
            assert span is not None, (builder.position, end)
            before = builder.position
            upto = Position(min(end, span.end))
            builder.build(span.view, span.start, upto, header_size=span.header_size)
            self._spans.release_before(builder.position)
            # The end is that of a record, or of a file whose rest is blank.
            assert builder.position > before, (before, end)

    def begin_flush(self) -> None:
        """Make durable what is built, beside all other work, unless that is under way.

        Raises:
            StorageError: the one before has failed: the page cache cannot be trusted.
        """
        if self._flush is not None:
            if not self._flush.done():
                return
            flush, self._flush = self._flush, None
            flush.result()
        if self._builder.dirty:
            self._flush = self._thread.submit(self._builder.begin_flush().run)

    def flush(self) -> None:
        """Return when all that is built is durable.

        Raises:
            StorageError: the operating system refused.
        """
        if self._flush is not None:
            flush, self._flush = self._flush, None
            flush.result()
        self._builder.flush()

    def close(self) -> None:
        """Close the files; nothing is flushed."""
        self._thread.shutdown()
        self._spans.close()
        self._builder.close()
