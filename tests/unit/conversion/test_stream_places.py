"""Where a repository may be, and what is said where the client of object stores is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledgermq.conversion.stream.stream_places import places_at
from ledgermq.model.errors import ConfigError

ROOT = Path(__file__).parents[3]

WITHOUT_BOTO = """
import sys
for name in ("boto3", "pyspark"):
    # As where it is not installed.
    sys.modules[name] = None
from ledgermq.cli.main import main
sys.exit(main(["backup", "list", sys.argv[1]]))
"""


def listed(place: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_BOTO, place],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_buckets_need_boto3_and_folders_do_not(tmp_path: Path) -> None:
    bucket, folder = listed("s3://backups/orders"), listed(str(tmp_path))

    assert bucket.returncode == 1
    assert "object stores need boto3: pip install 'ledgermq[buckets]'" in bucket.stderr
    assert (folder.returncode, folder.stderr) == (0, "")


@pytest.mark.parametrize(
    "text",
    [
        "ftp://bucket/a",
        "gs://",
        "s3://",
        "s3:///a",
        "s3://b",
        "s3://bucket/a/../b",
        "s3://bucket/a//b",
    ],
)
def test_an_address_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match="not the place of a repository of backup streams"
    ) as found:
        places_at(text)

    assert found.value.details["value"] == text


def test_keys_in_an_address_are_not_told() -> None:
    with pytest.raises(ConfigError) as found:
        places_at("s3://AKIA:/secret@bucket/a")

    assert "secret" not in str(found.value)
    assert "bucket" in str(found.value)
