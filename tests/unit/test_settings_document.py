"""docs/operating/settings.md tells every setting as the code has it."""

from __future__ import annotations

import re
from pathlib import Path

import tomli

from ledgermq.model.settings import Settings
from ledgermq.model.settings_change import CLUSTER_KEYS, RELOADABLE
from ledgermq.model.settings_file import (
    OCTAL_KEYS,
    keys_of,
    read_settings,
    tables,
    value_text,
)
from ledgermq.model.settings_rules import RULES

DOCUMENT = (Path(__file__).parents[2] / "docs" / "operating" / "settings.md").read_text()


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
