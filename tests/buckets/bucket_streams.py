"""A store whose backup stream goes into the bucket of a test."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from botocore.httpsession import URLLib3Session
from tests.buckets.object_server import BUCKET
from tests.unit.conversion.streamed_store import StreamedStore, exit_status_of, files_of

from ledgermq.buckets import amazon_bucket

TURNS = (1, 3, 9)
"""Records that are committed at each turn: two in the first file, and all in the last one."""


class BucketStream(StreamedStore):
    """As a ``StreamedStore``, with its repository below a prefix of the bucket."""

    def __init__(self, folder: Path, prefix: str, *, key: str = "") -> None:
        super().__init__(folder, key=key)
        self.prefix = prefix
        self.place = f"s3://{BUCKET}/{prefix}"

    def begin_anew(self, prefix: str) -> None:
        """Stream into another repository from now on."""
        self.prefix = prefix
        self.place = f"s3://{BUCKET}/{prefix}"

    def stream_turns(self) -> list[int]:
        """A turn for each of ``TURNS``; the exit statuses."""
        statuses = []
        for number in TURNS:
            self.commit(number)
            statuses.append(self.stream())
        return statuses

    def dies_before(self, change: int) -> bool:
        """Stream in a process of its own, which dies of SIGKILL before that request of those that
        change the bucket (from 0); whether there were so many.
        """

        def work() -> None:
            # Connections are not to be shared.
            amazon_bucket._client.cache_clear()
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(URLLib3Session, "send", _dying(change))
                assert self.stream_turns() == [0, 0, 0]

        status = exit_status_of(work)
        assert status in (0, -signal.SIGKILL)
        return status != 0


def _dying(change: int) -> Any:
    send = URLLib3Session.send
    left = change

    def dying(session: URLLib3Session, request: Any) -> Any:
        nonlocal left
        if request.method != "GET":
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        return send(session, request)

    return dying


def log_of(root: Path) -> dict[str, bytes]:
    """Files of a store's log and its index of entries."""
    return {
        name: content
        for name, content in files_of(root).items()
        if "/data/" in name or "/index/" in name
    }
