"""What is promised of buckets of S3 is true of Azure's, too: what shows it in seconds, mostly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from requests.adapters import HTTPAdapter

from ledgermq.buckets import azure_bucket
from ledgermq.buckets import bucket as bucket_steps
from ledgermq.model.errors import ConfigError
from ledgermq.model.exit_status import EXIT_CONFIG
from ledgermq.pipeline.archive.archive_folder import store_at
from ledgermq.pipeline.archive.object_store import ObjectStore
from tests.buckets import test_backup_streams, test_object_store
from tests.buckets.bucket_archives import opened
from tests.buckets.bucket_streams import BucketStream
from tests.buckets.object_server import bucket_of, forget_clients
from tests.unit.pipeline.archives import archived
from tests.unit.pipeline.test_archive_job import grown

pytestmark = pytest.mark.slow

store = test_backup_streams.store

SHARED = (
    test_object_store.test_of_many_puts_over_the_same_version_one_is_done,
    test_backup_streams.test_of_two_puts_of_one_piece_the_first_stays,
)
globals().update({one.__name__: one for one in SHARED})


@pytest.mark.long
def test_a_store_without_conditions_is_refused(
    tmp_path: Path,
    target: ObjectStore,
    root: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    messages, stream = grown(tmp_path / "messages", 6), BucketStream(tmp_path, "refused", root=root)
    stream.commit(4)
    with monkeypatch.context() as forgetful:
        forgetful.setattr(azure_bucket, "_if_none", dict)
        with pytest.raises(ConfigError, match="does not keep to conditions"):
            archived(messages, target)
        assert stream.stream() == EXIT_CONFIG
        assert "does not keep to conditions" in capsys.readouterr().err

    assert archived(messages, target).rows == 6
    assert stream.stream() == 0


def test_what_goes_in_blocks_is_whole_and_put_once(
    tmp_path: Path, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(azure_bucket, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(bucket_steps, "RANGE_BYTES", 700)
    bucket, content = bucket_of(target), os.urandom(4321)
    (tmp_path / "large").write_bytes(content)
    with (tmp_path / "large").open("rb") as file:
        assert bucket.put_new("large", file, 0)
        assert not bucket.put_new("large", file, 0)
    assert bucket.put("large", content[::-1], over=bucket.no_version) is None
    bucket.fetch("large", tmp_path / "fetched")
    stretch = bucket.stretch("large", 5, None, version=None)

    assert (tmp_path / "fetched").read_bytes() == content
    assert b"".join(iter(lambda: stretch.read(500), b"")) == content[5:]
    assert bucket.stretch("large", 4321, None, version=stretch.version).read(1) == b""


def test_blocks_of_two_puts_of_one_key_are_not_mixed(
    target: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two streams with a key put pieces of one name, which have different bytes."""
    monkeypatch.setattr(azure_bucket, "BLOCK_BYTES", 1000)
    bucket, send = bucket_of(target), HTTPAdapter.send
    mine, others = os.urandom(3000), os.urandom(3000)
    (tmp_path / "mine").write_bytes(mine)
    (tmp_path / "others").write_bytes(others)
    done: list[bool] = []

    def between(session: Any, request: Any, **how: Any) -> Any:
        if "comp=blocklist" in request.url and not done:
            done.append(False)
            with (tmp_path / "others").open("rb") as file:
                done[0] = bucket.put_new("piece", file, 0)
        return send(session, request, **how)

    monkeypatch.setattr(HTTPAdapter, "send", between)
    with (tmp_path / "mine").open("rb") as file:
        assert not bucket.put_new("piece", file, 0)
    found = bucket.get("piece", bytes_max=1 << 20)

    assert done == [True]
    assert found is not None
    assert found.content == others


SECRET = "wJalrXUtnFEMI-of-nobody"


def test_keys_are_told_nowhere_and_wrong_ones_by_their_setting(
    tmp_path: Path, target: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, told = grown(tmp_path / "store", 6), []
    for place in (
        f"abfss://archives:{SECRET}@devstoreaccount1.dfs.core.windows.net/a",
        f"abfss://archives@devstoreaccount1.dfs.core.windows.net:{SECRET}@x/a",
        "abfss://archives/a",
    ):
        with pytest.raises(ConfigError, match="not the place") as found:
            store_at(place)
        told.append(found.value)
    with pytest.raises(ConfigError, match="no such bucket"):
        archived(messages, opened(target.text.replace("archives@", "no-such-container@")))
    with pytest.raises(ConfigError, match="of another account") as found:
        store_at("abfss://archives@other.dfs.core.windows.net/a")
    told.append(found.value)
    right = os.environ["AZURE_STORAGE_CONNECTION_STRING"]
    wrong = right.replace("Eby8", "Ebx8")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", wrong)
    forget_clients()
    with pytest.raises(ConfigError, match="does not know the key") as found:
        archived(messages, target)
    told.append(found.value)

    assert "AZURE_STORAGE_KEY" in str(told[-1].details["setting"])
    for text in map(str, told):
        assert SECRET not in text
        assert "x8vdM02" not in text
