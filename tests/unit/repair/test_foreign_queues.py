"""Queues of no topic here: a check compares them with the messages that name them, and notes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from ledgermq.formats.arrays import UNIT
from ledgermq.formats.findings import Severity
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.formats.records.message import Message
from ledgermq.formats.records.properties import encode_properties
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.limits import DELAY_TOPIC
from ledgermq.repair.check.check_store import (
    OFFSETS,
    QUEUES,
    CheckedStore,
    CheckOptions,
    check_store,
    is_unit_of,
)
from ledgermq.repair.rebuild import rebuild
from ledgermq.store.store_directory import open_directory
from tests.conftest import Golden

NAME = "%LMQ%home%$room.1"


def check(root: Path) -> CheckedStore:
    return check_store(root, CheckOptions())


def light_file(root: Path) -> Path:
    return root / "consumequeue" / "%LMQ%one" / "0" / f"{0:020d}"


def put(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def content_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_light_queues_that_a_broker_has_written_are_right(golden: Golden) -> None:
    checked = check(golden("l494"))

    assert checked.findings == []
    assert checked.units == checked.records + 3 + 5


@pytest.mark.parametrize("harm", ["position", "size", "tags", "copy", "end", "lost size"])
def test_a_unit_that_is_of_no_message_is_noted_and_no_damage(
    golden_copy: Golden, harm: str
) -> None:
    root = golden_copy("l494")
    path = light_file(root)
    unit = np.frombuffer(path.read_bytes()[UNIT_SIZE : 2 * UNIT_SIZE], UNIT).copy()
    if harm in ("position", "size", "tags"):
        unit[harm] += 1
    elif harm == "copy":
        shutil.copytree(path.parents[1], root / "consumequeue" / NAME)
    elif harm == "end":
        unit["position"] = 10_000_000
    else:
        path.write_bytes(path.read_bytes()[:77])
    if harm != "lost size":
        put(path, UNIT_SIZE, unit.tobytes())
    findings = check(root).findings

    assert findings
    assert {one.severity for one in findings} == {Severity.NOTE}
    assert all("left alone" in one.remedy for one in findings)
    expected = NAME if harm == "copy" else "%LMQ%one"
    assert all(f"consumequeue/{expected}/0/" in one.file for one in findings)


def message(**properties: str) -> Message:
    return Message(
        topic="parent",
        queue_id=2,
        queue_offset=7,
        body=b"",
        properties=encode_properties(properties),
    )


LIGHTS = {QUEUES: f"%LMQ%a b,{NAME}", OFFSETS: "0,5"}


@pytest.mark.parametrize(
    ("name", "queue_id", "offset", "properties", "right"),
    [
        (NAME, 0, 5, LIGHTS, True),
        ("%LMQ%a b", 0, 0, LIGHTS, True),
        (NAME, 0, 4, LIGHTS, False),
        (NAME, 1, 5, LIGHTS, False),
        # Queues of other names have the message's own number.
        (NAME, 2, 5, LIGHTS, True),
        ("%LMQ%other", 0, 5, LIGHTS, False),
        ("parent", 2, 7, {}, True),
        (NAME, 0, 5, {}, False),
        (NAME, 0, 5, {QUEUES: f"x,{NAME}", OFFSETS: "5"}, False),
        # The unit has another code than the message's tag.
        (NAME, 0, 5, {**LIGHTS, "TAGS": "t"}, False),
    ],
)
def test_which_units_a_message_has(
    name: str, queue_id: int, offset: int, properties: dict[str, str], right: bool
) -> None:
    made = message(**properties)

    assert is_unit_of(made, name, queue_id, offset, 0, any_tags=False) is right


def test_a_delayed_message_has_a_time_for_the_code_of_its_tag() -> None:
    made = Message(topic=DELAY_TOPIC, queue_id=2, body=b"", properties=encode_properties(LIGHTS))

    assert is_unit_of(made, NAME, 0, 5, 1_700_000_000_000, any_tags=False)


def test_a_rebuild_leaves_them_in_their_place(golden_copy: Golden) -> None:
    root = golden_copy("l494")
    shutil.copytree(root / "consumequeue" / "%LMQ%one", root / "consumequeue" / NAME)
    (root / "consumequeue" / NAME / "a").mkdir()
    (root / "consumequeue" / NAME / "a" / "0").symlink_to("nowhere")
    lights = ["%LMQ%one", "%LMQ%two", NAME]
    before = [content_of(root / "consumequeue" / name) for name in lights]
    section = StoreSection(
        path_root_dir=root,
        log=LogKind.COMMITLOG,
        mapped_file_size_consume_queue=4_000,
        max_hash_slot_num=500,
        max_index_num=400,
    )
    rebuilt = rebuild(open_directory(root), section)
    after = [content_of(root / "consumequeue" / name) for name in lights]
    aside = rebuilt.aside[0]
    rebuild(open_directory(root), section)

    assert rebuilt.units == rebuilt.messages == 116
    assert before == after == [content_of(root / "consumequeue" / name) for name in lights]
    assert (root / "consumequeue" / NAME / "a" / "0").is_symlink()
    assert [content_of(aside / name) for name in lights] == before
    assert {one.severity for one in check(root).findings} <= {Severity.NOTE}
