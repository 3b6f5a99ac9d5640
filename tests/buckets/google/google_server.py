"""A server that speaks as Google Cloud Storage (fake-gcs-server) on loopback, over files.

``packaging/install-tools.sh gs`` installs it; where there is none, or not Google's client, its
tests are left out, which ``LEDGERMQ_GS=1`` makes a failure.
"""

from __future__ import annotations

import os
import shutil

import pytest

from ledgermq.buckets import google_bucket
from tests.buckets.object_server import BUCKET, ObjectServer

IS_REQUIRED = os.environ.get("LEDGERMQ_GS", "") not in ("", "0")


def left_out() -> str:
    """Why the tests are left out, if they are."""
    if not google_bucket.IS_INSTALLED:
        return "google-cloud-storage is not installed (extra buckets-google)"
    if shutil.which("fake-gcs-server") is None:
        return "no fake-gcs-server here (packaging/install-tools.sh gs)"
    return ""


class GoogleServer(ObjectServer):
    """The server over a folder; it can be killed and started again at the same port."""

    root = f"gs://{BUCKET}"

    def _command(self) -> list[str]:
        reason = left_out()
        if reason and IS_REQUIRED:
            pytest.fail(f"LEDGERMQ_GS=1, and {reason}")
        if reason:
            pytest.skip(reason)
        return [
            *("fake-gcs-server", "-scheme", "http", "-host", "127.0.0.1", "-log-level", "error"),
            *("-port", str(self.port), "-filesystem-root", str(self._folder / "store")),
        ]

    def variables(self, port: int) -> dict[str, str]:
        """The environment of clients that ask at that port."""
        return {
            "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}",
            # Or the client asks for the bucket beside the rest, in a thread.
            "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA": "true",
        }
