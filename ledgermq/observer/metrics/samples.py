"""Samples of one scrape, and the text of them that Prometheus reads.

From one scrape to the next the values change, and hardly ever a name or a label. prometheus-client
looks at each letter of each label's name again, which took two thirds of what a scrape of three
hundred series cost; here a line's head is made once. The content types, and how a value is written,
are prometheus-client's, and a test has it write the same samples: byte for byte the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

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


_OPEN_METRICS = "application/openmetrics-text"
_WHOLE_MAX = 1_000_000
"""Whole numbers below are written as they are, with ``.0`` behind: most values are such ones."""
_OTHER_NAMES = ("escaping=dots", "escaping=values")
"""Ways of writing names that a scraper may ask for, and which change ours."""

Labels = tuple[str, ...]


class _Form(IntEnum):
    OPEN_METRICS = 0
    TEXT = 1


class Exposition:
    """Writes samples; owned by one thread. It keeps the heads of what the last scrape told."""

    def __init__(self) -> None:
        self._heads: dict[tuple[str, Labels], str] = {}

    def encode(self, samples: Samples, accept: str) -> tuple[bytes, str]:
        """OpenMetrics, or Prometheus' older text, as the scraper takes it; and the content type.

        Args:
            accept: the request's header of that name, which may be empty.
        """
        encoder, content_type = choose_encoder(accept)
        if any(names in content_type for names in _OTHER_NAMES):
            return encoder(samples), content_type
        is_open = content_type.startswith(_OPEN_METRICS)
        form = _Form.OPEN_METRICS if is_open else _Form.TEXT
        lines: list[str] = []
        heads: dict[tuple[str, Labels], str] = {}
        for name, series in CATALOG.items():
            times = samples.times.get(name)
            if times is not None:
                lines.append(_FAMILIES[name][form])
                lines += _histogram_lines(name, times)
                continue
            values = samples.values.get(name)
            if values is None:
                continue
            lines.append(_FAMILIES[name][form])
            for labels, value in values:
                head = self._heads.get((name, labels))
                if head is None:
                    head = _head(series, labels)
                heads[name, labels] = head
                lines.append(head + value_text(value))
        self._heads = heads
        if form is _Form.OPEN_METRICS:
            lines.append("# EOF\n")
        return "".join(lines).encode(), content_type


def value_text(value: float) -> str:
    """A value as Go writes it, and the end of the line."""
    if isinstance(value, int) and 0 <= value < _WHOLE_MAX:
        return f"{int(value)}.0\n"
    return f"{floatToGoString(value)}\n"  # type: ignore[no-untyped-call]


def _head(series: Series, labels: Labels) -> str:
    """Name and labels of a line, and the blank before the value."""
    if not labels:
        return f"{series.name} "
    pairs = sorted(zip(series.labels, labels, strict=True))
    told = ",".join(f'{label}="{_escaped(of)}"' for label, of in pairs)
    return f"{series.name}{{{told}}} "


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _family(series: Series, form: _Form) -> str:
    """The lines before those of a family."""
    name = series.name
    if series.kind is SeriesKind.COUNTER and form is _Form.OPEN_METRICS:
        name = name.removesuffix("_total")
    return f"# HELP {name} {series.help}\n# TYPE {name} {series.kind.value}\n"


def _histogram_lines(name: str, times: Times) -> list[str]:
    lines, count = [], 0
    for head, observed in zip(_BUCKETS[name], times.counts, strict=False):
        count += observed
        lines.append(head + value_text(count))
    lines.append(f'{name}_bucket{{le="+Inf"}} {value_text(times.total)}')
    lines.append(f"{name}_count {value_text(times.total)}")
    lines.append(f"{name}_sum {value_text(times.sum_ns / 1e9)}")
    return lines


_FAMILIES = {name: [_family(series, form) for form in _Form] for name, series in CATALOG.items()}
_BUCKETS = {
    name: [f'{name}_bucket{{le="{bound_ns / 1e9!r}"}} ' for bound_ns in BOUNDS_NS]
    for name, series in CATALOG.items()
    if series.kind is SeriesKind.HISTOGRAM
}
