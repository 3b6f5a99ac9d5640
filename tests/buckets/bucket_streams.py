"""A store whose backup stream goes into the bucket of a test."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from botocore.httpsession import URLLib3Session
from requests.adapters import HTTPAdapter

from tests.buckets.object_server import BUCKET, forget_clients
from tests.small_store import STEP_MS
from tests.unit.conversion.streamed_store import StreamedStore, exit_status_of, files_of

TURNS = (1, 3, 9)
"""Records that are committed at each turn: two in the first file, and all in the last one."""


class BucketStream(StreamedStore):
    """As a ``StreamedStore``, with its repository below a prefix of the bucket."""

    def __init__(
        self,
        folder: Path,
        prefix: str,
        *,
        key: str = "",
        root: str = f"s3://{BUCKET}",
        step_ms: int = STEP_MS,
    ) -> None:
        super().__init__(folder, key=key, step_ms=step_ms)
        self.prefix = prefix
        self.root_address = root.replace("s3a:", "s3:")
        self.place = f"{self.root_address}/{prefix}"

    def begin_anew(self, prefix: str) -> None:
        """Stream into another repository from now on."""
        self.prefix = prefix
        self.place = f"{self.root_address}/{prefix}"

    def begin_in_child(self) -> None:
        forget_clients()

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
            forget_clients()
            with pytest.MonkeyPatch.context() as patched:
                dying_at(patched, change)
                assert self.stream_turns() == [0, 0, 0]

        status = exit_status_of(work)
        assert status in (0, -signal.SIGKILL)
        return status != 0


def dying_at(patched: pytest.MonkeyPatch, change: int) -> None:
    """Let this process die of SIGKILL before that request of those that change a bucket."""
    left = change

    def dying_of(send: Any) -> Any:
        def dying(session: Any, request: Any, **how: Any) -> Any:
            nonlocal left
            if request.method != "GET":
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
            return send(session, request, **how)

        return dying

    for sender in (URLLib3Session, HTTPAdapter):
        patched.setattr(sender, "send", dying_of(sender.send))


def log_of(root: Path) -> dict[str, bytes]:
    """Files of a store's log and its index of entries."""
    return {
        name: content
        for name, content in files_of(root).items()
        if "/data/" in name or "/index/" in name
    }
