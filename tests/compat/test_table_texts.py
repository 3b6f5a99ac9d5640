"""Whatever RocketMQ's own classes read of a table's text, ours read alike."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from tests.compat.rocketmq import oracle_program
from tests.compat.table_texts import Writer, as_ours, garbled, ours
from tests.suite.patience import PATIENCE_S
from tests.table_forms import FORMS

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

TABLES = Path(__file__).with_name("Tables.java")
KINDS = ("topics", "groups", "offsets", "delays")
TEXTS = 4_000


def said_by_rocketmq(texts: Sequence[tuple[str, str]]) -> list[str]:
    """What its classes read of each text of a kind, or why they refuse it."""
    told = "".join(
        f"{kind} {base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode()}\n"
        for kind, text in texts
    )
    done = subprocess.run(
        [sys.executable, str(oracle_program()), "java", str(TABLES)],
        input=told, capture_output=True, text=True, check=False, timeout=4 * PATIENCE_S,
    )  # fmt: skip
    lines = [line[5:] for line in done.stdout.splitlines() if line.startswith("said ")]

    assert len(lines) == len(texts), done.stderr
    return [base64.b64decode(line).decode() for line in lines]


def drawn(seeds: range) -> Iterator[tuple[str, str]]:
    for seed in seeds:
        random = Random(seed)
        kind = random.choice(KINDS)
        yield kind, Writer(random).text(kind)


def test_the_forms_that_are_written_down_are_what_rocketmq_reads() -> None:
    said = said_by_rocketmq([(form.kind, form.text) for form in FORMS])
    found = {
        form.name: as_ours(form.kind, line, form.read)
        for form, line in zip(FORMS, said, strict=True)
    }

    assert found == {form.name: form.read for form in FORMS}


def test_all_that_it_reads_of_what_people_write_is_read_alike() -> None:
    texts = list(drawn(range(TEXTS)))
    wrong, read = [], 0
    for (kind, text), line in zip(texts, said_by_rocketmq(texts), strict=True):
        mine = ours(kind, text)
        theirs = as_ours(kind, line, mine)
        read += theirs is not None
        if theirs is not None and theirs != mine:
            wrong.append((kind, text, theirs, mine))

    assert wrong == []
    assert read > TEXTS // 2


def test_what_both_read_of_a_garbled_text_is_the_same() -> None:
    """fastjson goes on behind some brackets and colons that have no place there; ours does not."""
    texts = [(kind, garbled(text, Random(text))) for kind, text in drawn(range(TEXTS, 2 * TEXTS))]
    wrong, read = [], 0
    for (kind, text), line in zip(texts, said_by_rocketmq(texts), strict=True):
        mine = ours(kind, text)
        theirs = as_ours(kind, line, mine)
        read += None not in (mine, theirs)
        if None not in (mine, theirs) and theirs != mine:
            wrong.append((kind, text, theirs, mine))

    assert wrong == []
    assert read > TEXTS // 8
