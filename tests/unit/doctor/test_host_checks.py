"""The machine, as it is, and with limits that it cannot meet."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from ledgermq.doctor.finding import Weight
from ledgermq.doctor.host_checks import host_checks
from ledgermq.formats.kernels import kernel
from tests.unit.doctor.subjects import by_check, subject_in


def test_each_part_of_the_machine_is_told(tmp_path: Path) -> None:
    findings = by_check(host_checks, subject_in(tmp_path))

    assert list(findings) == [
        "host.kernel", "host.kernels", "host.processors", "host.load", "host.memory", "host.swap",
        "host.overcommit", "host.huge-pages",
    ]  # fmt: skip
    assert findings["host.kernel"].measured == f"Linux {platform.release()}"


def test_windows_beyond_the_memory_are_told(tmp_path: Path) -> None:
    subject = subject_in(tmp_path, limits={"total_window_bytes": 1 << 50})
    finding = by_check(host_checks, subject)["host.memory"]

    assert finding.verdict is Weight.WARN
    assert "1,024.0 TiB" in finding.limit
    assert "limits.total_window_bytes" in finding.change


def test_an_old_kernel_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "release", lambda: "4.19.0-27-amd64")
    finding = by_check(host_checks, subject_in(tmp_path))["host.kernel"]

    assert (finding.verdict, finding.measured) == (Weight.WARN, "Linux 4.19.0-27-amd64")


@pytest.mark.parametrize("compiled", [True, False])
def test_kernels_that_did_not_compile_are_told(
    compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "compiled", compiled)
    finding = by_check(host_checks, subject_in(tmp_path))["host.kernels"]

    assert finding.verdict is (Weight.OK if compiled else Weight.WARN)
    assert compiled or "C compiler" in finding.change
