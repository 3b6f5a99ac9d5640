"""Samples of one scrape, also as prometheus-client collects them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from ledgermq.ipc.time_histogram import BOUNDS_NS, Times
from ledgermq.observer.metrics.series import CATALOG, Series, SeriesKind


class Samples:
    """Values by series; whatever is put has its row in the catalogue.

    Attributes:
        values: of a series, each with its labels' values.
        times: histograms, by the series' names.
    """

    def __init__(self) -> None:
        self.values: dict[str, list[tuple[tuple[str, ...], float]]] = {}
        self.times: dict[str, Times] = {}

    def put(self, name: str, value: float, *labels: str) -> None:
        """A value of series ``name``, with values of its labels in their order."""
        assert len(labels) == len(CATALOG[name].labels), (name, labels)
        self.values.setdefault(name, []).append((labels, value))

    def put_times(self, name: str, times: Times) -> None:
        """A histogram of times, in seconds."""
        assert CATALOG[name].kind is SeriesKind.HISTOGRAM, name
        self.times[name] = times

    def collect(self) -> Iterator[Metric]:
        """Metrics of all samples, as prometheus-client asks for them."""
        for name, series in CATALOG.items():
            if name in self.times:
                yield _histogram(series, self.times[name])
                continue
            values = self.values.get(name)
            if values is None:
                continue
            is_counter = series.kind is SeriesKind.COUNTER
            metric = Metric(
                name.removesuffix("_total") if is_counter else name, series.help, series.kind.value
            )
            for labels, value in values:
                metric.add_sample(name, dict(zip(series.labels, labels, strict=True)), value)
            yield metric


def _histogram(series: Series, times: Times) -> Metric:
    buckets, count = [], 0
    for bound_ns, observed in zip(BOUNDS_NS, times.counts, strict=False):
        count += observed
        buckets.append((repr(bound_ns / 1e9), float(count)))
    buckets.append(("+Inf", float(times.total)))
    return HistogramMetricFamily(
        series.name, series.help, buckets=buckets, sum_value=times.sum_ns / 1e9
    )
