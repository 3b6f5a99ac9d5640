"""Consumed offsets: which of RocketMQ's two files counts, and that both are written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ledgermq.formats.config_json import APPLIED_KEY, decode_document
from ledgermq.model.errors import CorruptLogError
from ledgermq.store.files.config_file import ConfigFile
from ledgermq.store.files.offsets_file import OffsetsFile
from tests.conftest import Golden

USUAL, LIGHT = "consumerOffset.json", "lmqConsumerOffset.json"
LIGHTS = {"%LMQ%one@g": 3}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    return folder


def document(offset: int, **more: object) -> dict[str, Any]:
    return {"offsetTable": {"t@g": {"0": offset}}, **more}


def put(config: Path, name: str, content: dict[str, Any], written: int = 0) -> None:
    (config / name).write_text(json.dumps(content))
    os.utime(config / name, (written, written))


def read(path: Path) -> dict[str, Any]:
    return decode_document(path.read_bytes())


@pytest.mark.parametrize(
    ("usual", "light", "counts", "passed_over"),
    [
        ((document(1), 0), None, USUAL, None),
        (None, (document(2), 0), LIGHT, None),
        # Both are RocketMQ's: the time tells.
        ((document(1), 9), (document(2), 8), USUAL, LIGHT),
        ((document(1), 8), (document(2), 9), LIGHT, USUAL),
        ((document(1), 8), (document(2), 8), USUAL, LIGHT),
        # A node writes both, so that what is not a node's is the younger one, whatever its time.
        ((document(1, **{APPLIED_KEY: 5}), 9), (document(2), 8), LIGHT, USUAL),
        ((document(1), 8), (document(2, **{APPLIED_KEY: 5}), 9), USUAL, LIGHT),
        # Both are a node's, which was killed between them.
        ((document(1, **{APPLIED_KEY: 6}), 8), (document(2, **{APPLIED_KEY: 5}), 9), USUAL, None),
        # Nothing is in it.
        ((document(1), 8), ({}, 9), USUAL, None),
        (({}, 9), (document(2), 8), LIGHT, None),
        (None, None, USUAL, None),
    ],
)
def test_the_file_that_was_written_last_counts(
    config: Path,
    usual: tuple[dict[str, Any], int] | None,
    light: tuple[dict[str, Any], int] | None,
    counts: str,
    passed_over: str | None,
) -> None:
    for name, one in ((USUAL, usual), (LIGHT, light)):
        if one is not None:
            put(config, name, *one)
    file = OffsetsFile(config)
    found = file.load()

    assert file.path == config / counts
    assert file.passed_over == (None if passed_over is None else config / passed_over)
    said = {USUAL: usual, LIGHT: light}[counts]
    assert found == ({} if said is None else said[0])


def test_the_offsets_of_light_queues_stay_whichever_counts(config: Path) -> None:
    put(config, USUAL, document(1), 9)
    put(config, LIGHT, document(2, lmqOffsetTable=LIGHTS), 8)

    assert OffsetsFile(config).load() == document(1, lmqOffsetTable=LIGHTS)


def test_both_are_written_where_the_second_is_there(config: Path) -> None:
    put(config, LIGHT, document(2))
    OffsetsFile(config).save(document(3))

    assert read(config / USUAL) == read(config / LIGHT) == document(3)
    assert read(config / f"{LIGHT}.bak") == document(2)


def test_the_copy_counts_where_rocketmq_was_killed_between_both_names(config: Path) -> None:
    put(config, f"{LIGHT}.bak", document(2))
    file = OffsetsFile(config)

    assert file.load() == document(2)
    assert (file.path.name, file.loaded.is_copy) == (LIGHT, True)

    file.save(document(3))

    assert read(config / LIGHT) == document(3)


def test_without_light_queues_there_is_no_second_file(config: Path) -> None:
    OffsetsFile(config).save(document(1))

    assert [path.name for path in config.iterdir()] == [USUAL]


def test_a_file_that_counts_and_cannot_be_read_is_refused_by_its_name(config: Path) -> None:
    put(config, USUAL, document(1, **{APPLIED_KEY: 5}))
    (config / LIGHT).write_bytes(b"\xff")

    with pytest.raises(CorruptLogError, match=LIGHT):
        OffsetsFile(config).load()


def test_what_a_broker_with_light_queues_has_written(golden: Golden) -> None:
    config = golden("l494") / "config"
    found = OffsetsFile(config).load()

    assert found == ConfigFile(config / LIGHT).load()
    assert found["offsetTable"] == {
        "work@g5-retry": dict.fromkeys("0123", 3),
        "plain0@g5-pull": dict.fromkeys("0123", 0),
    }
