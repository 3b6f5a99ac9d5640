"""Text of a scrape: what prometheus-client writes of the same samples, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder

from ledgermq.ipc.time_histogram import BOUNDS_NS, Times
from ledgermq.observer.metrics.samples import Exposition, Samples
from ledgermq.observer.metrics.series import CATALOG, SeriesKind

TEXT = "text/plain"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,*/*;q=0.1"
)
WITH_LABELS = "rocketmq_consumer_lag_messages"

VALUES = st.one_of(
    st.integers(-10, 1 << 63), st.floats(), st.booleans(), st.sampled_from([999_999, 1_000_000])
)


def all_series(label: str, value: float) -> Samples:
    """Every series of the catalogue once."""
    samples = Samples()
    for name, series in CATALOG.items():
        if series.kind is SeriesKind.HISTOGRAM:
            counts = tuple(range(len(BOUNDS_NS) + 1))
            samples.put_times(name, Times(counts, 1_234_567_890))
        else:
            samples.put(name, value, *(f"{label}{number}" for number in range(len(series.labels))))
    return samples


@pytest.mark.parametrize(
    "accept", ["", TEXT, OPEN_METRICS, PROMETHEUS_3, f"{OPEN_METRICS};escaping=dots",
               f"{OPEN_METRICS};escaping=values", f"{OPEN_METRICS};escaping=underscores"]
)  # fmt: skip
def test_every_series_is_written_as_the_library_writes_it(accept: str) -> None:
    exposition = Exposition()
    # The second time by heads that were kept, of which some are not told any more.
    for samples in (all_series("one", 3), all_series("two", 0.25), all_series("two", 7)):
        encoder, content_type = choose_encoder(accept)

        assert exposition.encode(samples, accept) == (encoder(samples), content_type)


@given(label=st.text(), value=VALUES)
def test_no_label_and_no_value_makes_a_difference(label: str, value: float) -> None:
    samples = Samples()
    samples.put(WITH_LABELS, value, label, "b", label, "", 'a"\\\n', "c")
    for accept in (TEXT, OPEN_METRICS):
        assert Exposition().encode(samples, accept)[0] == choose_encoder(accept)[0](samples)


def test_heads_of_what_is_gone_are_forgotten() -> None:
    exposition = Exposition()
    exposition.encode(all_series("one", 1), TEXT)
    few = Samples()
    few.put("ledgermq_topics", 1)
    exposition.encode(few, TEXT)

    assert list(exposition._heads) == [("ledgermq_topics", ())]
