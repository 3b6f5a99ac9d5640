"""Samples of one scrape, and how they are written."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from ledgermq.observer.metrics.series import CATALOG, SeriesKind


class Samples:
    """Values by series; whatever is put has its row in the catalogue."""

    def __init__(self) -> None:
        self._values: dict[str, list[tuple[tuple[str, ...], float]]] = {}

    def put(self, name: str, value: float, *labels: str) -> None:
        """A value of series ``name``, with values of its labels in their order."""
        assert len(labels) == len(CATALOG[name].labels), (name, labels)
        self._values.setdefault(name, []).append((labels, value))

    def collect(self) -> Iterator[Metric]:
        """For prometheus-client."""
        for name, series in CATALOG.items():
            values = self._values.get(name)
            if values is None:
                continue
            is_counter = series.kind is SeriesKind.COUNTER
            metric = Metric(name.removesuffix("_total") if is_counter else name,
                            series.help, series.kind.value)  # fmt: skip
            for labels, value in values:
                metric.add_sample(name, dict(zip(series.labels, labels, strict=True)), value)
            yield metric

    def encode(self, accept: str) -> tuple[bytes, str]:
        """OpenMetrics, or Prometheus' older text, as the scraper takes it; and the content type."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self), content_type
