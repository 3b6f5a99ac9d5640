"""Tests of ``make seeds``: what has passed is kept, and counts for the same sources alone."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import pytest

from ledgermq import broker, dispatcher, raft
from tests.simulator.runs.runs import run_seed
from tests.suite import seed_ledger
from tests.suite.seed_ledger import Passed


@pytest.fixture(autouse=True)
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_ledger, "KEPT", tmp_path / "passed.json")
    monkeypatch.setattr(seed_ledger, "CHUNK", 1)
    monkeypatch.setattr(seed_ledger, "WANTED", 2)
    monkeypatch.setattr(seed_ledger, "LOADED_AFTER", 1)


@pytest.fixture
def one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what it is of does not matter: to find it takes some runs."""
    monkeypatch.setattr(seed_ledger, "sources_of", lambda kind: "0c" * 32)


@pytest.mark.usefixtures("one_digest")
def test_what_has_passed_is_not_run_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seed_ledger.main(["--list", "cluster"]) == 1
    assert "cluster: 0 of 2 passed" in capsys.readouterr().out

    assert seed_ledger.main(["cluster"]) == 0
    assert "cluster: 2 of 2: seeds=1 failures=0" in capsys.readouterr().out
    assert seed_ledger.main(["--list", "cluster"]) == 0

    def refuse(kind: str, seed: int) -> str:
        raise AssertionError(f"{kind} {seed} was run again")

    monkeypatch.setattr(seed_ledger, "_chunk", refuse)
    assert seed_ledger.main(["cluster"]) == 0


def test_other_sources_begin_anew_and_elsewhere() -> None:
    seed_ledger.keep("plain", Passed("0a" * 32, 7, 1_000))

    assert seed_ledger.of_sources("plain", "0a" * 32) == Passed("0a" * 32, 7, 1_000)
    assert seed_ledger.of_sources("plain", "0b" * 32) == Passed("0b" * 32, 0x0B0B0B, 0)


def test_a_digest_is_of_what_a_kind_runs() -> None:
    assert seed_ledger.sources_of("cluster") != seed_ledger.sources_of("plain")


def test_a_kernel_counts_as_it_is_written() -> None:
    kernels = seed_ledger.KERNELS
    described = {kernels / "_cells.pxd", kernels / "_headers.pxd"}

    pyrex = set(seed_ledger._written(kernels / "_wait.cpython-399-of-any-machine.so"))
    assert {kernels / "_wait.pyx"} | described <= pyrex
    plain = set(seed_ledger._written(kernels / "_steady.cpython-399-of-any-machine.so"))
    assert {kernels / "_steady.py"} | described <= plain
    assert [*seed_ledger._written(kernels / "kernel.py")] == [kernels / "kernel.py"]


def test_words_alone_change_no_digest(tmp_path: Path) -> None:
    def digest(text: str) -> bytes:
        source = tmp_path / "module.py"
        source.write_text(text)
        return seed_ledger._code(source)

    plain = digest("A = 1\ndef one() -> int:\n    return A\n")
    told = 'A = 1  # so many\n"""Text."""\n\ndef one() -> int:\n    """Text."""\n    return A\n'
    assert digest(told) == plain
    assert digest(told.replace("A = 1", "A = 2")) != plain
    assert digest(told.replace("return A", 'return "A"')) != plain


@pytest.mark.usefixtures("one_digest")
def test_a_seed_that_fails_ends_its_kind_and_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = seed_ledger.of_sources("cluster", "0c" * 32).first
    passes = seed_ledger._chunk

    def second_fails(kind: str, seed: int) -> str:
        return seed_ledger._run(["sh", "-c", "echo split brain; false"]) if seed > first else (
            passes(kind, seed)
        )  # fmt: skip

    monkeypatch.setattr(seed_ledger, "_chunk", second_fails)

    assert seed_ledger.main(["cluster"]) == 1
    assert "split brain" in capsys.readouterr().err
    assert seed_ledger.kept()["cluster"].count == 1


def test_a_kind_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert seed_ledger.main(["storms"]) == 2
    assert "storms" in capsys.readouterr().err


@pytest.mark.long
def test_what_is_left_out_of_a_digest_runs_nothing() -> None:
    profile = cProfile.Profile()
    # What is run first imports, and what is imported runs once.
    run_seed(1)
    profile.runcall(run_seed, 2, spoils=True)
    called = {file for file, _, _ in pstats.Stats(profile).stats}  # type: ignore[attr-defined]

    idle = {Path(package.__file__).parent for package in (broker, dispatcher)}
    for kind in ("plain", "spoil"):
        assert set(seed_ledger.IDLE[kind]) == {path.name for path in idle}
    assert not [file for file in called if idle & {*Path(file).parents}]
    assert [file for file in called if Path(raft.__file__).parent in Path(file).parents]
