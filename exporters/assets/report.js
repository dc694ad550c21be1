// Behaviour of the page: starts the timeline, then the charts; findings, tables, theme. Makes no number of its own.
"use strict";
(function (root) {
  const F = root.StallscopeFormat, { Timeline, island, jsonIsland, node } = root.StallscopeTimeline;
  const $ = id => document.getElementById(id), all = (selector, from) => [...(from || document).querySelectorAll(selector)];
  const timeline = new Timeline();
  const state = root.stallscope = { timeline, charts: new Map() };

  // -- theme ------------------------------------------------------------------------------------------

  const dark = root.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = root.localStorage.getItem("stallscope-theme"); } catch (e) { /* storage is off for files in some browsers */ }

  function applyTheme() {
    document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    if (timeline.layout) { timeline.setTheme(); timeline.legend(); }
    for (const id of state.charts.keys()) drawChart(id);
  }

  dark.addEventListener("change", applyTheme);
  $("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { root.localStorage.setItem("stallscope-theme", chosen); } catch (e) { /* stays for this view */ }
    applyTheme();
  });
  // paper is light and narrower: what was drawn for the screen is drawn again for it
  function forPrint(begin) {
    document.body.classList.toggle("printing", begin);
    document.documentElement.dataset.theme = begin ? "light" : chosen || (dark.matches ? "dark" : "light");
    if (timeline.layout) { timeline.setTheme(); timeline.resize(); }
    for (const id of state.charts.keys()) {
      drawChart(id);
      root.Plotly.Plots.resize(document.querySelector(`[data-chart="${id}"]`));
    }
  }
  root.addEventListener("beforeprint", () => forPrint(true));
  root.addEventListener("afterprint", () => forPrint(false));
  $("print").addEventListener("click", () => root.print());

  // -- findings ---------------------------------------------------------------------------------------

  function activate(number, place) {
    for (const item of all(".finding")) {
      const mine = Number(item.dataset.finding) === number;
      item.classList.toggle("active", mine);
      item.querySelector(".finding-head").setAttribute("aria-expanded", String(mine));
    }
    if (number < 0) { timeline.clearFinding(); return; }
    if (!timeline.layout) return;
    const at = timeline.showFinding(number, place), list = timeline.layout.evidence[number];
    const label = document.querySelector(`#finding-${number} .place`);
    if (label && list && at >= 0) {
      const shown = list.rows.length < list.total ? `${F.count(list.rows.length)} longest of ${F.count(list.total)}` : F.count(list.total);
      const [, from, to, text] = list.rows[at];
      label.textContent = `${F.count(at + 1)} of ${shown} · ${F.duration(to - from)}` + (text ? ` · ${text}` : "");
    }
  }

  const stepPlace = by => { if (timeline.finding >= 0) activate(timeline.finding, timeline.place + by); };

  for (const head of all(".finding-head")) {
    head.addEventListener("click", () => {
      const number = Number(head.dataset.finding);
      if (timeline.finding === number && head.getAttribute("aria-expanded") === "true") activate(-1);
      else activate(number);
    });
  }
  for (const b of all("[data-step]")) b.addEventListener("click", () => stepPlace(Number(b.dataset.step)));
  for (const link of all(".top-findings a")) {
    link.addEventListener("click", event => {
      event.preventDefault();
      activate(Number(link.dataset.finding));
      $("work").scrollIntoView({ block: "start" });
    });
  }
  timeline.onFinding = activate;
  timeline.onPlace = stepPlace;
  timeline.onClear = () => { activate(-1); $("tl-search").value = ""; search(); };

  // -- timeline tools ---------------------------------------------------------------------------------

  const field = $("tl-search");
  function search() {
    const found = timeline.layout ? timeline.search(field.value) : null;
    $("tl-found").textContent = found ? `${F.plural(found.slices, "slice")} of ${F.plural(found.names, "name")}` : "";
    for (const id of ["tl-prev", "tl-next"]) $(id).disabled = !found || !found.slices;
  }
  field.addEventListener("input", search);
  field.addEventListener("keydown", event => {
    if (event.key === "Enter") { event.preventDefault(); timeline.step(!event.shiftKey); }
    if (event.key === "Escape") { field.value = ""; search(); $("tl-canvas").focus({ preventScroll: true }); }
  });
  $("tl-prev").addEventListener("click", () => timeline.step(false));
  $("tl-next").addEventListener("click", () => timeline.step(true));
  const tools = {
    in: () => timeline.zoom(0.6), out: () => timeline.zoom(1 / 0.6), fit: () => timeline.fit(),
    help: b => { const help = $("tl-help"); help.hidden = !help.hidden; b.setAttribute("aria-expanded", String(!help.hidden)); },
  };
  for (const b of all("[data-tl]")) b.addEventListener("click", () => tools[b.dataset.tl](b));
  document.addEventListener("keydown", event => {
    const typing = /^(input|textarea|select)$/i.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); field.focus(); }
  });
  timeline.listeners.push(t => {
    $("tl-window").textContent = `${F.duration(t.t1 - t.t0)} from ${F.duration(t.t0 - t.full[0])}`;
  });

  // -- tables -----------------------------------------------------------------------------------------

  const cellValue = cell => cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.classList.contains("num") ? null : cell.textContent;

  for (const table of all("table.sortable")) {
    all("thead button", table).forEach((b, column) => b.addEventListener("click", () => {
      const head = b.parentElement, numeric = head.classList.contains("num");
      const before = head.getAttribute("aria-sort");
      const descending = before ? before === "ascending" : numeric;
      for (const th of all("th", table)) th.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const body = table.tBodies[0], rows = [...body.rows].map(row => [cellValue(row.cells[column]), row]);
      rows.sort((x, y) => F.compareCells(x[0], y[0], descending));
      body.append(...rows.map(r => r[1]));
    }));
  }
  for (const input of all("[data-filter]")) {
    const table = $(input.dataset.filter);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every(word => text.includes(word));
      }
    });
  }

  // -- charts -----------------------------------------------------------------------------------------

  let figures = null;

  function resolve(value, colour) {
    if (typeof value === "string") return value.startsWith("@") ? colour(value.slice(1)) : value;
    if (Array.isArray(value)) return value.map(v => resolve(v, colour));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(v, colour)]));
    return value;
  }

  function drawChart(id) {
    const place = document.querySelector(`[data-chart="${id}"]`), figure = figures && figures.find(f => f.id === id);
    if (!place || !figure) return null;
    const style = getComputedStyle(document.documentElement), variable = name => style.getPropertyValue(name).trim();
    const bounds = { "bound-memory": "series-0", "bound-memory-bound": "series-0", "bound-compute": "series-1", "bound-compute-bound": "series-1", "bound-latency": "series-3", "bound-latency-bound": "series-3" };
    const colour = token => variable("--c-" + (bounds[token] || token).replaceAll("_", "-")) || variable("--c-series-7");
    const axis = { gridcolor: variable("--line"), zerolinecolor: variable("--line-strong"), linecolor: variable("--line-strong"), automargin: true, ticks: "", fixedrange: false };
    const given = resolve(figure.layout, colour), small = place.clientWidth < 520;
    const layout = {
      ...given, height: figure.height + (small && given.showlegend !== false ? 60 : 0), autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: variable("--sans"), size: 12, color: variable("--ink") }, margin: { l: 8, r: small ? 12 : 28, t: given.showlegend === false ? 8 : 34, b: 44, pad: 4 },
      hoverlabel: { align: "left", bgcolor: variable("--panel"), bordercolor: variable("--line-strong"), font: { color: variable("--ink"), size: 12 } },
      bargap: 0.28, hovermode: "closest", dragmode: "zoom", uniformtext: { mode: "hide", minsize: 10 },
      xaxis: { ...axis, ...given.xaxis }, yaxis: { ...axis, ...given.yaxis, tickfont: { size: small ? 10 : 12 } },
      legend: { font: { size: 12 }, x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", ...given.legend },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("--faint"), activecolor: variable("--accent") },
    };
    if (small) Object.assign(layout.xaxis, { nticks: 5, tickangle: 0 });
    if (small && figure.narrow) layout.yaxis.ticktext = figure.narrow;
    const config = { responsive: true, displayModeBar: small ? false : "hover", displaylogo: false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], plotlyServerURL: "" };
    if (!state.charts.has(id)) place.replaceChildren();
    state.charts.set(id, true);
    return root.Plotly.react(place, resolve(figure.data, colour), layout, config);
  }

  const rest = () => new Promise(done => (root.requestIdleCallback ? root.requestIdleCallback(done, { timeout: 600 }) : setTimeout(done, 30)));

  async function loadCharts() {
    const places = all("[data-chart]");
    if (!places.length) return 0;
    figures = await jsonIsland("blob-figures");
    const code = await island("blob-plotly", "gzip");
    const script = node("script");
    script.textContent = new TextDecoder().decode(code);
    document.head.append(script);
    if (!root.Plotly) throw new Error("plotly.js did not start");
    for (const place of places) {
      await rest();
      await drawChart(place.dataset.chart);
    }
    return places.length;
  }

  // -- start ------------------------------------------------------------------------------------------

  applyTheme();
  state.ready = timeline.load().then(() => {
    const asked = /^#finding-(\d+)$/.exec(root.location.hash);
    if (asked && $("finding-" + asked[1])) activate(Number(asked[1]));
    return true;
  }, error => {
    $("tl-details").replaceChildren(node("p", "more", "The timeline could not be drawn: " + error.message + ". A browser of 2023 or later is needed."));
    throw error;
  });
  state.chartsReady = state.ready.catch(() => 0).then(rest).then(loadCharts).catch(error => {
    for (const wait of all(".plot .wait")) wait.textContent = "The charts could not be drawn: " + error.message + ". The numbers are in the tables.";
    throw error;
  });
})(globalThis);
