"""Sizes of a store's files: given, or those of the files there."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ledgermq.cli.arguments import add_size_options
from ledgermq.cli.store.store_sizes import store_section
from ledgermq.model.config.settings import LogKind, StoreSection
from ledgermq.model.errors import ConfigError
from tests.conftest import Golden


def section(root: Path, *words: str) -> StoreSection:
    parser = argparse.ArgumentParser()
    add_size_options(parser)
    return store_section(parser.parse_args(words), root, LogKind.COMMITLOG)


def sizes(found: StoreSection) -> tuple[int | None, int | None, int | None]:
    return (
        found.mapped_file_size_consume_queue,
        found.max_hash_slot_num,
        found.max_index_num,
    )


def test_sizes_are_those_of_the_files_there(golden: Golden) -> None:
    assert sizes(section(golden("gs1"))) == (4_000, 500, 400)


@pytest.mark.parametrize(
    "words", [["--hash-slots", "500"], ["--index-items", "400"], ["--queue-file-size", "4000"]]
)
def test_one_size_given_leaves_the_others_to_the_files(golden: Golden, words: list[str]) -> None:
    assert sizes(section(golden("gs1"), *words)) == (4_000, 500, 400)


@pytest.mark.parametrize(
    "words",
    [
        ["--hash-slots", "501"],
        ["--hash-slots", "0"],
        ["--index-items", "100000"],
        ["--queue-file-size", "6000000"],
        ["--delay-levels", "1s soon"],
    ],
)
def test_a_size_that_no_file_has_is_refused(golden: Golden, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        section(golden("gs1"), *words)

    assert words[1].rpartition(" ")[2] in str(refused.value)


def test_a_store_without_files_takes_what_is_given(tmp_path: Path) -> None:
    assert sizes(section(tmp_path)) == (None, None, None)
    assert sizes(section(tmp_path, "--hash-slots", "7", "--index-items", "9")) == (None, 7, 9)
    assert not section(tmp_path, "--no-index").message_index_enable
