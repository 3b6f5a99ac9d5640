"""The process that reads pieces says what it needs, and takes nothing for a place that is none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ledgermq.cold import cold_process
from ledgermq.daemon.children import start_order
from ledgermq.ipc.cursor_page import Role
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import ColdSection, Settings
from ledgermq.model.errors import ConfigError
from ledgermq.process.settings.settings_loading import load_settings


def test_a_library_that_is_missing_is_named_with_what_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "ledgermq.cold.cold_worker", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'ledgermq\[spark\]'") as refused:
        cold_process.run(Settings(), StopFlag())
    assert refused.value.details["missing"] == "pyarrow"


def test_it_is_started_where_there_is_a_place_alone() -> None:
    settings = Settings()
    assert Role.COLD not in start_order(settings)
    cold = replace(settings, cold=ColdSection(place="s3://archive/orders"))
    assert Role.COLD in start_order(cold)
    witness = replace(cold, node=replace(cold.node, witness=True))
    assert start_order(witness) == [Role.RAFT]


@pytest.mark.parametrize("place", ["pieces", "s3:/archive", "", "s3://a b"])
def test_a_place_that_can_be_none_is_refused_by_its_setting(tmp_path: Path, place: str) -> None:
    file = tmp_path / "ledgermq.toml"
    file.write_text(f'[cold]\nplace = "{place}"\n')
    with pytest.raises(ConfigError, match=r"cold\.place"):
        load_settings(file)
