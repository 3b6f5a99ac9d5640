"""A server that speaks as Azure's blob storage (Azurite) on loopback, over files.

``packaging/install-tools.sh abfs`` installs it; where there is none, or not Azure's client, its
tests are left out, which ``LEDGERMQ_ABFS=1`` makes a failure.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ledgermq.buckets import azure_bucket
from tests.buckets.object_server import BUCKET, ObjectServer

IS_REQUIRED = os.environ.get("LEDGERMQ_ABFS", "") not in ("", "0")
ACCOUNT = "devstoreaccount1"
# Azurite's own, which is no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def program() -> str | None:
    """The server's program."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    installed = cache / "ledgermq-azurite" / "node_modules" / ".bin" / "azurite-blob"
    return str(installed) if installed.exists() else shutil.which("azurite-blob")


def left_out() -> str:
    """Why the tests are left out, if they are."""
    if not azure_bucket.IS_INSTALLED:
        return "azure-storage-blob is not installed (extra buckets-azure)"
    if program() is None or shutil.which("node") is None:
        return "no Azurite here (packaging/install-tools.sh abfs)"
    return ""


class AzureServer(ObjectServer):
    """The server over a folder, with a container."""

    root = f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net"

    def start(self) -> None:
        """Start it, wait until it takes connections, and make the container."""
        super().start()
        text = self.variables(self.port)["AZURE_STORAGE_CONNECTION_STRING"]
        service = azure_bucket.BlobServiceClient.from_connection_string(text)
        service.create_container(BUCKET)
        service.close()

    def _command(self) -> list[str]:
        reason = left_out()
        if reason and IS_REQUIRED:
            pytest.fail(f"LEDGERMQ_ABFS=1, and {reason}")
        found = program()
        if reason or found is None:
            pytest.skip(reason)
        return [
            *(found, "--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--silent"),
            *("--location", str(self._folder / "store"), "--disableTelemetry"),
            "--skipApiVersionCheck",
        ]

    def variables(self, port: int) -> dict[str, str]:
        """The environment of clients that ask at that port."""
        return {
            "AZURE_STORAGE_CONNECTION_STRING": (
                f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
                f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
            )
        }
