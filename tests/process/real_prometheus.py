"""A real Prometheus that scrapes real nodes every second, and what it says is firing."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.process.conftest import wait_until
from tests.process.group_nodes import free_port
from tests.suite.patience import PATIENCE_S

ASK_S = 10.0
LOOK_BACK = "60m"


class Fired(NamedTuple):
    """An alert, and the second of Prometheus' clock at which it fired first."""

    name: str
    at_s: float


class RealPrometheus:
    """Owned by ``prometheus_of``."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self._address}/-/ready", timeout=ASK_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector that an expression has now."""
        words = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(
            f"{self._address}/api/v1/query?{words}", timeout=ASK_S
        ) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def firing(self) -> set[str]:
        """Names of alerts that fire now."""
        return {row["metric"]["alertname"] for row in self.query('ALERTS{alertstate="firing"}')}

    def has_fired(self, *names: str) -> bool:
        """Whether each of them fires, or has fired."""
        rows = self.query(f'max_over_time(ALERTS{{alertstate="firing"}}[{LOOK_BACK}])')
        return {f"Ledgermq{name}" for name in names} <= {row["metric"]["alertname"] for row in rows}

    def wait_fires(self, *names: str) -> None:
        """Until each of them has fired, now or before."""
        wait_until(lambda: self.has_fired(*names), f"{', '.join(names)} to fire")

    def wait_firing(self, *names: str) -> None:
        """Until all of them fire at once."""
        wanted = {f"Ledgermq{name}" for name in names}
        wait_until(lambda: wanted <= self.firing(), f"{sorted(wanted)} to fire together")

    def wait_value(self, expression: str, value: float) -> None:
        """Until an expression has one value, and it is ``value``."""

        def look() -> bool:
            return [float(row["value"][1]) for row in self.query(expression)] == [value]

        wait_until(look, f"{expression} to be {value}")

    def wait_ends(self, *names: str) -> None:
        """Until none of them fires."""
        wanted = {f"Ledgermq{name}" for name in names}
        wait_until(lambda: not wanted & self.firing(), f"{sorted(wanted)} to end")

    def fired(self) -> list[Fired]:
        """All that have fired, the first one first."""
        rows = self.query(
            "min by (alertname) (min_over_time("
            f'timestamp(ALERTS{{alertstate="firing"}})[{LOOK_BACK}:1s]))'
        )
        found = [Fired(row["metric"]["alertname"], float(row["value"][1])) for row in rows]
        return sorted(found, key=lambda one: one.at_s)


@contextmanager
def prometheus_of(folder: Path, targets: Mapping[str, str], rules: str) -> Iterator[RealPrometheus]:
    """One that scrapes ``targets`` (addresses, and ``http`` or ``https`` of each)."""
    port = free_port()
    (folder / "rules.yml").write_text(rules)
    config = {
        "global": {
            "scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s",
        },
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": "ledgermq",
                "tls_config": {"insecure_skip_verify": True},
                "static_configs": [
                    {"targets": [address], "labels": {"__scheme__": scheme}}
                    for address, scheme in targets.items()
                ],
            }
        ],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps(config))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml",
             f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            made = RealPrometheus(port)
            wait_until(made.is_ready, "Prometheus")
            yield made
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
