"""docs/operating/settings.md tells every setting as the code has it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import tomli

from ledgermq.model.config.settings import Settings
from ledgermq.model.config.settings_change import CLUSTER_KEYS, RELOADABLE
from ledgermq.model.config.settings_file import (
    OCTAL_KEYS,
    keys_of,
    read_settings,
    tables,
    value_text,
)
from ledgermq.model.config.settings_rules import RULES

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "operating" / "settings.md").read_text()


def told() -> dict[str, list[str]]:
    """Cells behind the key, by key, of all tables of settings."""
    rows: dict[str, list[str]] = {}
    for table, text in re.findall(r"^## \[(\w+)\]\n(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S):
        for line in text.splitlines():
            if match := re.match(r"\| `(\w+)` \| (.*) \|$", line):
                cells = re.split(r"(?<!\\) \| ", match[2])
                rows[f"{table}.{match[1]}"] = [cell.replace("\\|", "|") for cell in cells]
    return rows


def expected(key: str) -> list[str]:
    table, _, name = key.partition(".")
    value = getattr(getattr(Settings(), table), name)
    default = "not set" if value is None else f"`{value_text(value, octal=key in OCTAL_KEYS)}`"
    return [default, RULES[key].allowed, "yes" if key in RELOADABLE else "no"]


def test_every_setting_is_told_in_the_order_of_the_dataclasses() -> None:
    keys = [f"{table}.{name}" for table in tables() for name in keys_of(getattr(Settings(), table))]

    assert list(told()) == keys


def test_defaults_limits_and_reloading_are_those_of_the_code() -> None:
    assert {key: cells[:3] for key, cells in told().items()} == {
        key: expected(key) for key in RULES
    }


def test_every_setting_has_a_meaning() -> None:
    assert [key for key, cells in told().items() if not cells[3].endswith(".")] == []


def test_the_settings_that_members_compare_are_all_named() -> None:
    (paragraph,) = re.findall(r"^All members of a group.*?\n\n", DOCUMENT, re.M | re.S)

    assert tuple(re.findall(r"`(\w+\.\w+)`", paragraph)) == CLUSTER_KEYS


def test_the_example_is_a_settings_file() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.S)

    assert read_settings(example, name="example").store.path_root_dir == Path(
        tomli.loads(example)["store"]["path_root_dir"]
    )


def writer() -> ModuleType:
    """The program that writes the document."""
    path = ROOT / "packaging" / "settings_reference.py"
    spec = importlib.util.spec_from_file_location("settings_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_document_is_what_its_program_writes() -> None:
    assert writer().reference(DOCUMENT) == DOCUMENT


def test_the_program_puts_right_what_is_out_of_date_and_asks_for_meanings() -> None:
    program = writer()
    row = re.search(r"^\| `heartbeat_ms` .*\n", DOCUMENT, re.M)
    assert row is not None
    stale = (
        DOCUMENT.replace(row[0], "", 1)
        .replace("`store.max_message_size`, ", "", 1)
        .replace('| `level` | `"INFO"` |', '| `level` | `"LOUD"` |')
        .replace("| `every_s` |", "| `every_minute` |")
    )
    written = program.reference(stale)

    assert program.without_meaning(written) == ["raft.heartbeat_ms", "scrub.every_s"]
    assert re.sub(r"[^|]*\|$", "", written, flags=re.M) == re.sub(
        r"[^|]*\|$", "", DOCUMENT, flags=re.M
    )


def test_a_table_that_is_new_gets_its_section() -> None:
    program = writer()
    before, _, rest = DOCUMENT.partition("## [scrub]")
    without = before + rest[rest.index("## [ack]") :]
    written = program.reference(without)

    assert "## [scrub]" not in without
    assert program.without_meaning(written) == ["scrub.rate_bytes_per_s", "scrub.every_s"]
