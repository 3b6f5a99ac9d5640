// The console's script: pages work without it. It keeps them current, draws curves, sorts tables
// and switches the theme.
"use strict";

(() => {
  const REFRESH_MS = 5000;
  const SHORTEST_S = 300;
  const MINUTES = [1, 2, 5, 10, 15, 30, 60].map((minutes) => 60 * minutes);
  const POWERS_OF_TWO = Array.from({ length: 60 }, (_one, power) => 2 ** power);
  // From a tenth, as numbers are written: a line at each of them is what is written beside it.
  const ROUND = Array.from({ length: 18 }, (_one, power) => 10 ** (power - 1)).flatMap((ten) =>
    [1, 2, 5].map((digit) => digit * ten),
  );
  const root = document.documentElement;

  // Theme: the browser's wish, until the reader has another one.

  const themeButton = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
  }

  function nameTheme() {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
  }

  if (themeButton) {
    themeButton.hidden = false;
    nameTheme();
    themeButton.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      const secure = location.protocol === "https:" ? "; Secure" : "";
      document.cookie =
        `ledgermq-theme=${root.dataset.theme}; Path=/; Max-Age=31536000; SameSite=Strict${secure}`;
      nameTheme();
      drawAll();
    });
    prefersDark.addEventListener("change", () => {
      nameTheme();
      drawAll();
    });
  }

  // Numbers, as the server writes them.

  const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

  function bytesText(value) {
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < BYTES.length - 1) {
      value /= 1024;
      unit += 1;
    }
    const digits = unit && value < 100 && value % 1 ? 1 : 0;
    return `${value.toFixed(digits)} ${BYTES[unit]}`;
  }

  function countText(value) {
    if (Math.abs(value) >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
    if (Math.abs(value) >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
    return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
  }

  function durationText(value) {
    return value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${Number(value.toPrecision(3))} ms`;
  }

  const WRITERS = { bytes: bytesText, ms: durationText, number: countText };

  // Curves.

  const plots = new Map();

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  function withAlpha(hex, alpha) {
    return `${hex}${alpha}`;
  }

  function draw(figure, data) {
    const series = JSON.parse(figure.dataset.series);
    const write = WRITERS[figure.dataset.unit];
    const place = figure.querySelector(".plot");
    const times = data.time || [];
    const courses = series.map(([key]) => data[key] || []);
    plots.get(figure)?.destroy();
    plots.delete(figure);
    place.replaceChildren();
    const isEmpty = times.length < 2;
    place.classList.toggle("is-empty", isEmpty);
    tellNow(figure, series, courses, write);
    if (isEmpty) {
      place.textContent = "The first samples come within half a minute.";
      return;
    }
    const axis = {
      stroke: colour("--muted"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const last = times[times.length - 1];
    const options = {
      width: place.clientWidth,
      height: place.clientHeight,
      legend: { show: false },
      padding: [4, 24, 0, 0],
      cursor: { y: false, points: { size: 6 } },
      scales: {
        x: { time: true, range: [Math.min(times[0], last - SHORTEST_S), last] },
        // Room above the highest line, so that its label is whole.
        y: { range: (_plot, _low, high) => [0, (high || 1) * 1.12] },
      },
      axes: [
        { ...axis, size: 26, incrs: MINUTES, values: (_plot, at) => at.map(clockText) },
        {
          ...axis,
          size: 62,
          space: 20,
          values: (_plot, at) => at.map(write),
          incrs: figure.dataset.unit === "bytes" ? POWERS_OF_TWO : ROUND,
        },
      ],
      series: [
        {},
        ...series.map(([, title], number) => {
          const stroke = colour(`--curve-${number + 1}`);
          return {
            label: title,
            stroke,
            width: 1.6,
            fill: number === 0 ? withAlpha(stroke, "1f") : undefined,
            points: { show: false },
          };
        }),
      ],
      hooks: { setCursor: [(plot) => tellCursor(figure, plot, series, write)] },
    };
    plots.set(figure, new uPlot(options, [times, ...courses], place));
  }

  function clockText(seconds) {
    const moment = new Date(seconds * 1000);
    return moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  }

  function legend(figure, series, values, write, when) {
    const now = figure.querySelector(".now");
    now.replaceChildren();
    series.forEach(([, title], number) => {
      const mark = document.createElement("i");
      mark.className = `curve-${number + 1}`;
      mark.setAttribute("aria-hidden", "true");
      const value = values[number];
      now.append(mark, `${title} ${value === undefined || value === null ? "–" : write(value)}`);
    });
    if (when) now.append(` at ${when}`);
  }

  function tellNow(figure, series, courses, write) {
    const values = courses.map((course) => course[course.length - 1]);
    legend(figure, series, values, write, "");
    const told = series.map(([, title], number) => {
      const course = courses[number].filter((value) => value !== null);
      if (!course.length) return `${title}: nothing yet`;
      return `${title}: ${write(values[number])} now, at most ${write(Math.max(...course))}`;
    });
    const caption = figure.querySelector("figcaption span").textContent;
    figure.querySelector(".plot").setAttribute("aria-label", `${caption}, the last hour at most. ${told.join(". ")}`);
  }

  function tellCursor(figure, plot, series, write) {
    const at = plot.cursor.idx;
    const isOn = at !== null && at !== undefined;
    const index = isOn ? at : plot.data[0].length - 1;
    const values = series.map((_one, number) => plot.data[number + 1][index]);
    const when = isOn && plot.cursor.left >= 0 ? clockText(plot.data[0][index]) : "";
    legend(figure, series, values, write, when);
  }

  const drawn = new Map();

  function drawAll() {
    for (const [figure, data] of drawn) draw(figure, data);
  }

  async function fetchCurves() {
    const figures = [...document.querySelectorAll(".chart")];
    for (const source of new Set(figures.map((figure) => figure.dataset.source))) {
      let data;
      try {
        const answer = await fetch(source, { headers: { accept: "application/json" } });
        if (!answer.ok) continue;
        data = await answer.json();
      } catch {
        continue;
      }
      for (const figure of figures.filter((one) => one.dataset.source === source)) {
        if (figure.matches(":hover") && drawn.has(figure)) continue;
        drawn.set(figure, data);
        draw(figure, data);
      }
    }
  }

  new ResizeObserver(drawAll).observe(document.body);

  // Tables are sorted where they stand: a page of rows, not those behind it.

  const sorts = new Map();

  function valueOf(cell) {
    const value = cell.dataset.value;
    if (value === undefined) return cell.textContent.trim().toLowerCase();
    return value === "" ? -Infinity : Number(value);
  }

  function compare(one, two) {
    if (typeof one === "number" && typeof two === "number") return one - two;
    return String(one).localeCompare(String(two), "en", { numeric: true });
  }

  function sortTable(table, column, isUp) {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [valueOf(row.cells[column]), row]);
    rows.sort((one, two) => (isUp ? 1 : -1) * compare(one[0], two[0]));
    body.append(...rows.map(([, row]) => row));
    [...table.tHead.rows[0].cells].forEach((cell, number) => {
      if (number === column) cell.setAttribute("aria-sort", isUp ? "ascending" : "descending");
      else cell.removeAttribute("aria-sort");
    });
  }

  function dressTable(table) {
    if ("sorted" in table.dataset || table.tBodies[0].rows.length < 2) return;
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      if ("fixed" in cell.dataset) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...cell.childNodes);
      cell.append(button);
      button.addEventListener("click", () => {
        const isUp = cell.getAttribute("aria-sort") !== "ascending";
        sorts.set(table.dataset.table, [column, isUp]);
        sortTable(table, column, isUp);
      });
    });
    const sort = sorts.get(table.dataset.table);
    if (sort) sortTable(table, ...sort);
  }

  function dress(within) {
    within.querySelectorAll("table[data-table]").forEach(dressTable);
  }

  // What changes by itself is fetched again, unless somebody is at work in it.

  const pauseButton = document.getElementById("pause");
  let isPaused = false;
  let isFetching = false;

  function isInUse(region) {
    const selection = getSelection();
    return (
      region.contains(document.activeElement) ||
      (selection !== null && !selection.isCollapsed && region.contains(selection.anchorNode))
    );
  }

  async function refresh() {
    if (isPaused || isFetching || document.hidden) return;
    isFetching = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.redirected) return location.reload();
      take(new DOMParser().parseFromString(await answer.text(), "text/html"), answer.ok);
      await fetchCurves();
    } catch {
      // The node is being started again, or has gone: what is there stands, and says how old it is.
      tellStale(true);
    } finally {
      isFetching = false;
    }
  }

  const stale = document.getElementById("stale");
  let heardAt = new Date();

  function tellStale(isStale) {
    if (!isStale) heardAt = new Date();
    if (!stale || stale.hidden !== isStale) return;
    stale.querySelector("time").textContent = heardAt.toLocaleTimeString();
    stale.hidden = !isStale;
    document.getElementById("health").hidden = isStale;
  }

  function take(fresh, isWell) {
    tellStale(false);
    const reload = document.querySelector('[data-live="reload"]');
    if (reload && isWell) return location.reload();
    for (const region of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(region.id);
      if (!next || isInUse(region)) continue;
      const place = region.querySelector(".scroll")?.scrollLeft || 0;
      const open = [...region.querySelectorAll("details")].map((one) => one.open);
      const details = [...next.querySelectorAll("details")];
      if (open.length === details.length) details.forEach((one, at) => (one.open = open[at]));
      region.replaceWith(next);
      dress(next);
      const scroll = next.querySelector(".scroll");
      if (scroll) scroll.scrollLeft = place;
    }
  }

  if (pauseButton && document.querySelector("[data-live]")) {
    pauseButton.hidden = false;
    pauseButton.addEventListener("click", () => {
      isPaused = !isPaused;
      pauseButton.setAttribute("aria-pressed", String(isPaused));
      pauseButton.textContent = isPaused ? "Paused" : "Pause";
      if (!isPaused) refresh();
    });
    setInterval(refresh, REFRESH_MS);
    document.addEventListener("visibilitychange", refresh);
  }

  // A narrow screen shows a strip of pages: that one is there from which the reader looks.

  const strip = document.querySelector(".side");
  const current = strip?.querySelector("[aria-current]");
  if (current && strip.scrollWidth > strip.clientWidth) {
    const { left, width } = current.getBoundingClientRect();
    strip.scrollLeft += left + width / 2 - strip.clientWidth / 2;
  }

  for (const box of document.querySelectorAll('.search input[type="checkbox"]')) {
    box.addEventListener("change", () => box.form.requestSubmit());
  }

  dress(document);
  fetchCurves();
})();
