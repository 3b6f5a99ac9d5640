"""Plots: lines of many points, of one, and of none."""

from __future__ import annotations

from ledgermq.pipeline.jobs.job_reports import Line, line_plot


def plotted(*lines: Line) -> str:
    return line_plot(lines, label="rates", x_text=lambda x: f"at {x:g}")


def test_a_line_of_one_point_is_a_dot_in_the_middle() -> None:
    plot = plotted(Line("orders", [(5, 2.0)]), Line("bills", [(5, 1.0)]))

    assert plot.count("<circle") == 2
    assert "<polyline" not in plot
    assert plot.count("at 5") == 1


def test_a_dot_stands_among_lines() -> None:
    plot = plotted(Line("orders", [(0, 1.0), (10, 2.0)]), Line("bills", [(10, 2.0)]))
    right = plot.split('points="')[1].split('"')[0].split()[1]
    dot = plot.split('<circle cx="')[1].split('"')

    assert (plot.count("<polyline"), plot.count("<circle")) == (1, 1)
    assert right == f"{dot[0]},{dot[2]}"
    assert plot.count("at ") == 5


def test_a_line_without_points_is_left_out() -> None:
    assert plotted(Line("orders", [])) == ""
    assert plotted(Line("orders", []), Line("bills", [(1, 1.0)])).count("<title>") == 1
