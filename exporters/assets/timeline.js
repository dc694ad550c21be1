// The timeline: unpacks the slices and draws them on a canvas. Cost is bounded by rows x pixels x log n: in every
// visible row it jumps from one slice to the first that ends after the next pixel, and never looks at the rest.
// Pixels are written to a buffer of 32-bit words; text, arrows and marks go on top.
"use strict";
(function (root) {
  const F = root.StallscopeFormat;
  const ROW = 17, HEAD = 22, COUNTER = 34, RULER = 22, GAP_KIND = 13, STEP_KIND = 14, FINDING_KIND = 15;
  const LEAST = 20;                 // narrowest window, nanoseconds
  const HUES = {                    // hue and saturation by kind; a name shifts them a little
    "python": [262, 26], "operator": [213, 62], "runtime call": [36, 72], "queue": [22, 45], "kernel": [170, 45],
    "memcpy": [226, 78], "memset": [96, 36], "collective": [285, 52], "device wait": [350, 22],
    "annotation": [205, 14], "device annotation": [205, 14], "profiler overhead": [0, 8], "other": [210, 5],
    "step": [200, 38], "finding": [14, 78],
  };

  async function inflate(bytes, format) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /** An island's bytes, unpacked; its text is dropped from the document once it has been read. */
  async function island(id, format, keep) {
    const node = document.getElementById(id);
    const bytes = F.bytesOfBase64(node.textContent.trim());
    if (!keep) node.textContent = "";
    return inflate(bytes, format || "deflate");
  }

  async function jsonIsland(id) {
    return JSON.parse(new TextDecoder().decode(await island(id)));
  }

  class Timeline {
    constructor() {
      this.canvas = document.getElementById("tl-canvas");
      this.scroll = document.getElementById("tl-scroll");
      this.spacer = document.getElementById("tl-spacer");
      this.overview = document.getElementById("tl-overview");
      this.panel = document.getElementById("tl-details");
      this.x = this.canvas.getContext("2d", { alpha: false });
      this.selected = -1;
      this.selectedLine = null;
      this.hover = null;
      this.finding = -1;
      this.place = 0;
      this.range = null;
      this.matches = null;
      this.dirty = false;
      this.details = null;
      this.listeners = [];
      this.timings = {};
    }

    // -- unpacking -----------------------------------------------------------------------------------

    async load() {
      const begin = performance.now();
      const [layout, raw] = await Promise.all([jsonIsland("blob-layout"), island("blob-slices")]);
      this.timings.inflate = performance.now() - begin;
      const n = layout.slices, [wg, wd, wn] = layout.widths;
      const gap = F.readPlanes(raw, 0, n, wg), dur = F.readPlanes(raw, n * wg, n, wd);
      const name = F.readPlanes(raw, n * (wg + wd), n, wn);
      this.layout = layout;
      this.names = layout.names;
      this.kinds = layout.nameKinds;
      this.code = layout.names.length < 65536 ? new Uint16Array(name) : new Uint32Array(name);
      this.clipped = new Map(layout.clipped);
      this.start = gap;              // becomes the start times
      this.end = dur;                // becomes the ends as drawn
      this.sum = new Float64Array(n + 1);
      this.findRows();
      this.addUp();
      this.short = new Array(this.names.length);
      this.textWidth = new Float32Array(this.names.length);
      this.full = [layout.start, layout.end];
      this.t0 = layout.start; this.t1 = layout.end;
      this.placeLines();
      this.timings.decode = performance.now() - begin - this.timings.inflate;
      this.setTheme();
      this.listen();
      this.resize();
      this.paint();
      this.timings.total = performance.now() - begin;
      this.timings.sinceNavigation = performance.now();
      this.explain();
      this.legend();
    }

    /** Rows of every track as objects; strips are the slices that stand for no span of the recording. */
    findRows() {
      this.tracks = [];
      this.strips = [];
      for (const group of this.layout.groups) {
        for (const track of group.tracks) {
          track.group = group;
          track.open = this.openAtFirst(track);
          track.lines = track.rows.map(([first, many], level) => ({ track, level, first, last: first + many }));
          this.tracks.push(track);
          if (["gap", "step", "finding"].includes(track.kind)) {
            for (const row of track.lines) this.strips.push([row.first, row.last]);
          }
        }
      }
      this.strips.sort((a, b) => a[0] - b[0]);
    }

    openAtFirst(track) {
      const most = this.layout.folded;
      if (track.folded) return Math.min(track.rows.length, 1);
      if (track.kind === "finding") return Math.min(track.rows.length, 3);
      return Math.min(track.rows.length, most);
    }

    addUp() {
      const { start, end, sum } = this, base = this.layout.base;
      for (const track of this.tracks) {
        for (const row of track.lines) {
          let at = base;
          for (let i = row.first; i < row.last; i++) {
            at += start[i];
            start[i] = at;
            sum[i + 1] = sum[i] + end[i];
            at += end[i];
            end[i] = at;
          }
        }
      }
    }

    /** What is on which height: heads of groups, rows, a line where levels are folded, counters. */
    placeLines() {
      const lines = [];
      let y = 0;
      const put = line => { line.y = y; lines.push(line); y += line.h; };
      for (const group of this.layout.groups) {
        put({ type: "head", h: HEAD, group });
        if (group.closed) continue;
        for (const track of group.tracks) {
          for (let level = 0; level < track.open; level++) put({ type: "row", h: ROW, track, row: track.lines[level] });
          if (track.open < track.lines.length || track.open > this.openAtFirst(track)) put({ type: "more", h: ROW, track });
          y += 3;
        }
        if (group.kind === "device") for (const counter of this.layout.counters) if (counter.device === group.device) put({ type: "counter", h: COUNTER, counter });
      }
      const rest = this.layout.counters.filter(c => c.device < 0 || !this.layout.groups.some(g => g.kind === "device" && g.device === c.device));
      if (rest.length) {
        put({ type: "head", h: HEAD, group: { label: "Counters", kind: "counters", tracks: [] } });
        for (const counter of rest) put({ type: "counter", h: COUNTER, counter });
      }
      this.lines = lines;
      this.height = y + 6;
      this.spacer.style.height = Math.max(this.height + RULER, this.scroll.clientHeight) + "px";
      this.lineOfRow = new Map(lines.filter(l => l.type === "row").map(l => [l.row, l]));
    }

    // -- looks ---------------------------------------------------------------------------------------

    setTheme() {
      const style = getComputedStyle(document.documentElement);
      const variable = name => style.getPropertyValue(name).trim();
      this.ink = {};
      for (const key of ["panel", "bg", "ink", "soft", "faint", "line", "line-strong", "accent", "canvas-band", "canvas-edge", "slice-ink"]) {
        this.ink[key] = variable("--" + key);
      }
      this.sans = variable("--sans");
      const panel = F.rgb(this.ink.panel), light = parseFloat(variable("--slice-light"));
      this.colours = this.names.map((name, i) => {
        const kind = this.kinds[i];
        if (kind === GAP_KIND) return F.rgb(variable("--c-idle-" + name.replaceAll("_", "-")) || this.ink.faint);
        const [hue, saturation] = HUES[this.layout.kinds[kind]] || HUES.other;
        const h = F.hash(name);
        return F.rgb([hue + (h % 25) - 12, saturation + (h >> 5) % 11 - 5, light + (h >> 9) % 9 - 4]);
      });
      const word = c => (255 << 24 | c[2] << 16 | c[1] << 8 | c[0]) >>> 0;
      const STEPS = 16;
      this.steps = STEPS;
      // a pixel that is only partly covered is mixed with the background, so that sparse work looks sparse
      this.words = new Uint32Array(this.names.length * (STEPS + 1));
      this.dimmed = new Uint32Array(this.names.length);
      this.colours.forEach((c, i) => {
        for (let s = 0; s <= STEPS; s++) this.words[i * (STEPS + 1) + s] = word(F.mix(panel, c, 0.28 + 0.72 * s / STEPS));
        this.dimmed[i] = word(F.mix(panel, c, 0.16));
      });
      this.textInk = this.colours.map(c => (0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2] > 120 ? this.ink["slice-ink"] : "#ffffff"));
      this.back = word(panel);
      this.headBack = word(F.rgb(this.ink.bg));
      this.lineBack = word(F.mix(panel, F.rgb(this.ink.line), 0.6));
      this.request();
      this.drawOverview();
    }

    gutter() {
      return this.scroll.clientWidth < 640 ? 84 : 190;
    }

    resize() {
      const ratio = Math.min(root.devicePixelRatio || 1, 3);
      const width = this.scroll.clientWidth, height = this.scroll.clientHeight;
      if (!width || !height) return;
      this.ratio = ratio; this.width = width; this.view = height;
      this.canvas.width = Math.round(width * ratio); this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = height + "px";
      this.image = this.x.createImageData(this.canvas.width, this.canvas.height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.spacer.style.height = Math.max(this.height + RULER, height) + "px";
      // at once: a new size has cleared the canvas, and a print does not wait for the next frame
      this.paint();
      this.drawOverview();
    }

    request() {
      if (this.dirty) return;
      this.dirty = true;
      requestAnimationFrame(() => { if (this.dirty) this.paint(); });
    }

    // -- drawing -------------------------------------------------------------------------------------

    paint() {
      this.dirty = false;
      if (!this.image || !this.words) return;
      const begin = performance.now(), { x, ratio, pixels } = this;
      const W = this.canvas.width, H = this.canvas.height, G = Math.round(this.gutter() * ratio);
      const top = this.scroll.scrollTop;
      pixels.fill(this.back);
      const texts = [];
      const seen = this.visibleLines(top);
      for (const line of seen) {
        const y = Math.round((line.y - top + RULER) * ratio), h = Math.round(line.h * ratio);
        if (line.type === "head") this.box(0, y, W, h, this.headBack);
        else if (line.type === "row") this.paintRow(line, G, y, W, h, texts);
      }
      x.setTransform(1, 0, 0, 1, 0, 0);
      x.putImageData(this.image, 0, 0);
      x.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.paintBands(top);
      this.paintTexts(texts);
      for (const line of seen) if (line.type === "counter") this.paintCounter(line, top);
      this.paintMarks(top);
      this.paintGutter(seen, top);
      this.paintRuler();
      this.paintOverviewWindow();
      this.timings.paint = performance.now() - begin;
      for (const listener of this.listeners) listener(this);
    }

    visibleLines(top) {
      const bottom = top + this.view;
      return this.lines.filter(l => l.y + l.h > top - RULER && l.y < bottom);
    }

    box(x0, y0, w, h, word) {
      const W = this.canvas.width, H = this.canvas.height;
      const from = Math.max(0, x0), to = Math.min(W, x0 + w), last = Math.min(H, y0 + h);
      if (to <= from) return;
      for (let y = Math.max(0, y0); y < last; y++) this.pixels.fill(word, y * W + from, y * W + to);
    }

    paintRow(line, G, y, W, h, texts) {
      const { start, end, sum, code, words, matches, steps } = this;
      const { first, last } = line.row, t0 = this.t0, t1 = this.t1;
      const k = (W - G) / (t1 - t0), per = 1 / k, stride = steps + 1;
      const inner = h - Math.max(1, Math.round(this.ratio)), wordsOf = i => matches && !matches[code[i]] ? this.dimmed[code[i]] : 0;
      const least = 26 * this.ratio;
      let i = F.firstAbove(end, first, last, t0);
      // slices without a length that start in the window end where they start
      while (i > first && end[i - 1] >= t0) i--;
      while (i < last && start[i] < t1) {
        const x0 = Math.max(0, Math.floor((start[i] - t0) * k)), x1 = Math.min(W - G, Math.floor((end[i] - t0) * k));
        if (x1 > x0) {
          const wide = x1 - x0 > 3;
          this.box(G + x0, y, x1 - x0 - (wide ? 1 : 0), inner, wordsOf(i) || words[code[i] * stride + steps]);
          if (x1 - x0 > least) texts.push(i, G + x0, y, x1 - x0);
          i++;
          continue;
        }
        // everything that ends inside this pixel at once: coloured by its first slice, as strong as it is covered
        const until = t0 + (x0 + 1) * per;
        const next = F.gallop(end, i, last, until);
        let covered = sum[next] - sum[i];
        if (next < last && start[next] < until) covered += until - Math.max(start[next], until - per);
        const strength = Math.min(steps, Math.round(steps * covered * k));
        this.box(G + x0, y, 1, inner, wordsOf(i) || words[code[i] * stride + strength]);
        i = Math.max(next, i + 1);
      }
    }

    paintTexts(texts) {
      const { x, ratio } = this;
      x.font = "11px " + this.sans;
      x.textBaseline = "middle";
      x.textAlign = "left";
      let ink = "";
      for (let t = 0; t < texts.length; t += 4) {
        const i = texts[t], name = this.code[i], room = texts[t + 3] / ratio - 6;
        const dim = this.matches && !this.matches[name];
        const colour = dim ? this.ink.faint : this.textInk[name];
        if (colour !== ink) x.fillStyle = ink = colour;
        const text = this.fitText(name, room);
        if (text) x.fillText(text, texts[t + 1] / ratio + 3, texts[t + 2] / ratio + ROW / 2 - 0.5);
      }
    }

    label(name) {
      if (this.short[name] === undefined) {
        const text = this.kinds[name] === GAP_KIND ? this.names[name].replaceAll("_", " ") : F.shortName(this.names[name]);
        this.short[name] = text.length > 160 ? text.slice(0, 160) + "…" : text;
      }
      return this.short[name];
    }

    fitText(name, room) {
      const text = this.label(name);
      if (!this.textWidth[name]) this.textWidth[name] = this.x.measureText(text).width;
      const width = this.textWidth[name];
      if (width <= room) return text;
      let many = Math.floor(text.length * (room - 6) / width), cut = "";
      do cut = text.slice(0, many--) + "…"; while (many > 1 && this.x.measureText(cut).width > room);
      return many < 2 ? "" : cut;
    }

    toX(t) {
      const g = this.gutter();
      return g + (t - this.t0) * (this.width - g) / (this.t1 - this.t0);
    }

    toTime(px) {
      const g = this.gutter();
      return this.t0 + (px - g) * (this.t1 - this.t0) / (this.width - g);
    }

    /** The evidence of the active finding as bands over all tracks, and outlines on its own track. */
    paintBands(top) {
      const shown = this.evidence();
      if (!shown.length) return;
      const { x } = this, g = this.gutter();
      let reach = -1;
      x.fillStyle = this.ink["canvas-band"];
      for (const [, from, to] of shown) {
        if (to < this.t0 || from > this.t1) continue;
        const x0 = Math.max(g, this.toX(from), reach), x1 = Math.min(this.width, Math.max(this.toX(to), this.toX(from) + 1));
        if (x1 > x0) { x.fillRect(x0, RULER, x1 - x0, this.view); reach = x1; }
      }
      const [track, from, to] = shown[this.place] || [];
      if (from === undefined) return;
      const x0 = Math.max(g, this.toX(from)), x1 = Math.min(this.width, this.toX(to));
      if (x1 < g || x0 > this.width) return;
      x.strokeStyle = this.ink["canvas-edge"];
      x.lineWidth = 1;
      x.beginPath();
      x.moveTo(Math.round(x0) + 0.5, RULER); x.lineTo(Math.round(x0) + 0.5, this.view);
      x.moveTo(Math.round(x1) - 0.5, RULER); x.lineTo(Math.round(x1) - 0.5, this.view);
      x.stroke();
      const lines = this.lines.filter(l => l.type === "row" && l.track.track === track && track >= 0);
      if (lines.length) {
        x.lineWidth = 2;
        const y0 = lines[0].y - top + RULER, y1 = lines[lines.length - 1].y + ROW - top + RULER;
        x.strokeRect(x0, y0 - 1, Math.max(2, x1 - x0), y1 - y0 + 1);
      }
    }

    paintMarks(top) {
      const { x } = this, g = this.gutter();
      x.save();
      x.beginPath();
      x.rect(g, RULER, this.width - g, this.view);
      x.clip();
      if (this.selected >= 0) {
        this.outline(this.selected, top, this.ink.ink, 2);
        for (const [from, to] of this.arrows || []) this.arrow(from, to, top);
      }
      if (this.range) {
        const [a, b] = [this.toX(Math.min(...this.range)), this.toX(Math.max(...this.range))];
        x.fillStyle = this.ink.accent;
        x.globalAlpha = 0.16;
        x.fillRect(a, 0, b - a, this.view);
        x.globalAlpha = 1;
        x.font = "600 12px " + this.sans;
        x.textAlign = "center";
        this.tag(F.duration(Math.abs(this.range[1] - this.range[0])), (a + b) / 2, RULER + 14);
        x.textAlign = "left";
      }
      x.restore();
    }

    tag(text, px, py) {
      const { x } = this, w = x.measureText(text).width + 12;
      const at = Math.max(this.gutter() + w / 2, Math.min(px, this.width - w / 2));
      x.fillStyle = this.ink.accent;
      x.fillRect(at - w / 2, py - 9, w, 18);
      x.fillStyle = this.ink.panel;
      x.fillText(text, at, py);
    }

    outline(i, top, colour, width) {
      const line = this.lineOf(i);
      if (!line) return;
      const x0 = this.toX(this.start[i]), x1 = this.toX(this.end[i]);
      this.x.strokeStyle = colour;
      this.x.lineWidth = width;
      this.x.strokeRect(x0 - 0.5, line.y - top + RULER - 0.5, Math.max(2, x1 - x0), ROW - 1);
    }

    arrow(from, to, top) {
      const a = this.lineOf(from), b = this.lineOf(to);
      if (!a || !b) return;
      const { x } = this;
      const x0 = this.toX(this.start[from]), y0 = a.y - top + RULER + ROW / 2;
      const x1 = this.toX(this.start[to]), y1 = b.y - top + RULER + ROW / 2;
      const bend = Math.max(24, Math.abs(x1 - x0) / 2);
      x.strokeStyle = x.fillStyle = this.ink.ink;
      x.lineWidth = 1.4;
      x.beginPath();
      x.moveTo(x0, y0);
      x.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
      x.stroke();
      x.beginPath();
      x.moveTo(x1, y1); x.lineTo(x1 - 7, y1 - 4); x.lineTo(x1 - 7, y1 + 4);
      x.fill();
      this.outline(to, top, this.ink.ink, 1.4);
      this.outline(from, top, this.ink.ink, 1.4);
    }

    paintCounter(line, top) {
      const { x } = this, g = this.gutter(), { times, values, low, high } = line.counter;
      const y0 = line.y - top + RULER + 3, h = line.h - 8, span = high - low || 1;
      const at = v => y0 + h - h * (v - low) / span;
      x.save();
      x.beginPath(); x.rect(g, RULER, this.width - g, this.view); x.clip();
      x.beginPath();
      let i = Math.max(0, F.firstAbove(times, 0, times.length, this.t0) - 1), begun = false;
      for (; i < times.length; i++) {
        const px = Math.max(g - 2, this.toX(times[i]));
        if (begun) x.lineTo(px, at(values[i - 1])); else x.moveTo(px, at(values[i]));
        x.lineTo(px, at(values[i]));
        begun = true;
        if (times[i] > this.t1) break;
      }
      if (begun && i >= times.length) x.lineTo(this.toX(times[times.length - 1]), at(values[values.length - 1]));
      x.strokeStyle = this.ink.accent;
      x.lineWidth = 1.2;
      x.stroke();
      x.restore();
    }

    paintGutter(seen, top) {
      const { x } = this, g = this.gutter();
      x.fillStyle = this.ink.panel;
      x.fillRect(0, RULER, g - 1, this.view);
      x.fillStyle = this.ink.line;
      x.fillRect(g - 1, 0, 1, this.view);
      x.textBaseline = "middle";
      for (const line of seen) {
        const y = line.y - top + RULER;
        if (line.type === "head") {
          x.fillStyle = this.ink.bg;
          x.fillRect(0, y, g - 1, line.h);
          x.fillStyle = this.ink.ink;
          x.font = "600 12px " + this.sans;
          const sign = line.group.tracks.length ? (line.group.closed ? "▸ " : "▾ ") : "";
          this.cut(sign + line.group.label, 8, y + line.h / 2, this.width - 16);
        } else if (line.type === "row" && line.row.level === 0) {
          x.fillStyle = this.ink.soft;
          x.font = "11.5px " + this.sans;
          this.cut(line.track.label, 14, y + ROW / 2, g - 22);
        } else if (line.type === "more") {
          const left = line.track.lines.length - line.track.open;
          x.fillStyle = this.ink.accent;
          x.font = "11.5px " + this.sans;
          const text = left > 0 ? `▸ ${F.plural(left, line.track.kind === "stream" ? "more lane" : "more level")}` : "▴ fold";
          this.cut(text, 14, y + ROW / 2, g - 22);
        } else if (line.type === "counter") {
          const { label, unit, low, high } = line.counter;
          x.fillStyle = this.ink.soft;
          x.font = "11.5px " + this.sans;
          this.cut(label, 14, y + 10, g - 22);
          x.fillStyle = this.ink.faint;
          x.font = "10.5px " + this.sans;
          this.cut(`${this.amount(low, unit)} to ${this.amount(high, unit)}`, 14, y + 23, g - 22);
        }
      }
    }

    amount(value, unit) {
      if (unit === "ns") return F.duration(value);
      if (unit === "bytes") {
        for (const [limit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
          if (Math.abs(value) >= limit) return (value / limit).toFixed(1) + " " + name;
        }
        return value + " B";
      }
      return String(Number(value.toPrecision(4))) + (unit ? " " + unit : "");
    }

    cut(text, px, py, room) {
      const { x } = this;
      if (x.measureText(text).width > room) {
        let many = text.length;
        while (many > 1 && x.measureText(text.slice(0, many) + "…").width > room) many = Math.floor(many * 0.9);
        text = text.slice(0, many) + "…";
      }
      x.fillText(text, px, py);
    }

    paintRuler() {
      const { x } = this, g = this.gutter();
      x.fillStyle = this.ink.bg;
      x.fillRect(0, 0, this.width, RULER);
      x.fillStyle = this.ink["line-strong"];
      x.fillRect(0, RULER - 1, this.width, 1);
      x.font = "11px " + this.sans;
      x.textBaseline = "middle";
      const origin = this.full[0];
      for (const tick of F.ticks(this.t0 - origin, this.t1 - origin, this.width - g, 96)) {
        const px = Math.round(this.toX(tick.at + origin));
        if (px < g) continue;
        x.fillStyle = this.ink["line-strong"];
        x.fillRect(px, RULER - 7, 1, 6);
        x.fillStyle = this.ink.soft;
        if (px + 60 < this.width) x.fillText(tick.text, px + 4, RULER / 2 - 1);
      }
      if (this.hover !== null && !this.drag) {
        const px = this.toX(this.hover);
        x.fillStyle = this.ink.faint;
        x.globalAlpha = 0.6;
        x.fillRect(Math.round(px), RULER, 1, this.view);
        x.globalAlpha = 1;
      }
    }

    // -- overview ------------------------------------------------------------------------------------

    drawOverview() {
      const node = this.overview, ratio = Math.min(root.devicePixelRatio || 1, 3);
      if (!this.layout || !node.clientWidth) return;
      node.width = Math.round(node.clientWidth * ratio); node.height = Math.round(node.clientHeight * ratio);
      const back = document.createElement("canvas");
      back.width = node.width; back.height = node.height;
      const x = back.getContext("2d");
      x.setTransform(ratio, 0, 0, ratio, 0, 0);
      const g = this.gutter(), w = node.clientWidth - g, h = node.clientHeight;
      x.fillStyle = this.ink.panel;
      x.fillRect(0, 0, g + w, h);
      const lines = this.layout.overview, each = (h - 4) / Math.max(1, lines.length);
      const style = getComputedStyle(document.documentElement);
      x.fillStyle = style.getPropertyValue(lines.length && lines[0].label === "host" ? "--c-operator" : "--c-compute").trim();
      lines.forEach((line, n) => {
        const many = line.permille.length;
        line.permille.forEach((v, i) => {
          const bar = (each - 2) * v / 1000;
          x.fillRect(g + i * w / many, 2 + (n + 1) * each - 1 - bar, w / many + 0.3, bar);
        });
      });
      x.fillStyle = this.ink.soft;
      x.font = "11px " + this.sans;
      x.textBaseline = "middle";
      x.fillText(lines.length > 1 ? `busy, ${lines.length} devices` : `busy, ${lines.length ? lines[0].label : ""}`, 14, h / 2);
      this.overviewBack = back;
      this.paintOverviewWindow();
    }

    paintOverviewWindow() {
      const node = this.overview, back = this.overviewBack;
      if (!back) return;
      const ratio = Math.min(root.devicePixelRatio || 1, 3), x = node.getContext("2d");
      x.setTransform(1, 0, 0, 1, 0, 0);
      x.drawImage(back, 0, 0);
      x.setTransform(ratio, 0, 0, ratio, 0, 0);
      const g = this.gutter(), w = node.clientWidth - g, h = node.clientHeight, [a, b] = this.full;
      const px = t => g + (t - a) * w / (b - a);
      x.fillStyle = this.ink["canvas-edge"];
      for (const [, from, to] of this.evidence()) x.fillRect(px(from), h - 3, Math.max(1, px(to) - px(from)), 3);
      const x0 = px(this.t0), x1 = Math.max(px(this.t1), x0 + 2);
      x.fillStyle = this.ink.bg;
      x.globalAlpha = 0.62;
      x.fillRect(g, 0, x0 - g, h);
      x.fillRect(x1, 0, g + w - x1, h);
      x.globalAlpha = 1;
      x.strokeStyle = this.ink.accent;
      x.lineWidth = 1.5;
      x.strokeRect(x0 + 0.75, 0.75, x1 - x0 - 1.5, h - 1.5);
    }

    // -- moving --------------------------------------------------------------------------------------

    show(t0, t1, smooth) {
      const [to0, to1] = F.clampWindow(t0, t1, this.full[0], this.full[1], LEAST);
      if (!smooth || root.matchMedia("(prefers-reduced-motion: reduce)").matches) {
        this.moving = null;
        this.t0 = to0; this.t1 = to1;
        this.request();
        return;
      }
      // widths change by factors, so the way is even in their logarithm
      const from = [this.t0, this.t1], begin = performance.now(), moving = this.moving = {};
      const ratio = Math.log((to1 - to0) / (from[1] - from[0]));
      const frame = () => {
        if (this.moving !== moving) return;
        const p = Math.min(1, (performance.now() - begin) / 220), e = 1 - Math.pow(1 - p, 3);
        const width = (from[1] - from[0]) * Math.exp(ratio * e);
        const shift = Math.abs(ratio) < 1e-6 ? e : (Math.exp(ratio * e) - 1) / (Math.exp(ratio) - 1);
        const mid = (from[0] + from[1]) / 2 + ((to0 + to1) - (from[0] + from[1])) / 2 * shift;
        [this.t0, this.t1] = p === 1 ? [to0, to1] : [mid - width / 2, mid + width / 2];
        this.paint();
        if (p < 1) requestAnimationFrame(frame); else this.moving = null;
      };
      frame();
    }

    zoom(factor, px) {
      const t = px === undefined ? (this.t0 + this.t1) / 2 : this.toTime(px);
      this.show(t - (t - this.t0) * factor, t + (this.t1 - t) * factor);
    }

    pan(share) {
      const by = (this.t1 - this.t0) * share;
      this.show(this.t0 + by, this.t1 + by);
    }

    fit() {
      this.show(this.full[0], this.full[1], true);
    }

    reveal(line) {
      const top = this.scroll.scrollTop, y = line.y;
      if (y < top + 8 || y + line.h > top + this.view - RULER - 8) {
        this.scroll.scrollTop = Math.max(0, y - (this.view - RULER) / 3);
      }
    }

    // -- findings ------------------------------------------------------------------------------------

    evidence() {
      const list = this.layout && this.finding >= 0 ? this.layout.evidence[this.finding] : null;
      return list ? list.rows : [];
    }

    /** Make a finding the active one and go to one of its places: the longest at first. */
    showFinding(number, place) {
      const list = this.layout.evidence[number];
      this.finding = number;
      if (!list || !list.rows.length) { this.request(); return -1; }
      const many = list.rows.length;
      this.place = place === undefined ? list.first : (place % many + many) % many;
      const [track, from, to] = list.rows[this.place];
      const page = this.tracks.find(t => t.track === track && track >= 0) || this.tracks.find(t => t.finding === number);
      if (page) {
        if (page.group.closed) { page.group.closed = false; this.placeLines(); }
        const line = this.lineOfRow.get(page.lines[0]);
        if (line) this.reveal(line);
      }
      this.show(...F.around(from, to, 0.6), true);
      return this.place;
    }

    clearFinding() {
      this.finding = -1;
      this.request();
    }

    // -- picking -------------------------------------------------------------------------------------

    rowOf(i) {
      for (const track of this.tracks) {
        const lines = track.lines;
        if (!lines.length || i < lines[0].first || i >= lines[lines.length - 1].last) continue;
        for (const row of lines) if (i >= row.first && i < row.last) return row;
      }
      return null;
    }

    lineOf(i) {
      const row = this.rowOf(i);
      return row ? this.lineOfRow.get(row) : null;
    }

    lineAt(py) {
      const y = py - RULER + this.scroll.scrollTop;
      return this.lines.find(l => y >= l.y && y < l.y + l.h) || null;
    }

    /** The slice under a point: the one there, else the nearest within three pixels. */
    hit(px, py) {
      const line = this.lineAt(py);
      if (!line || line.type !== "row" || px < this.gutter() || py < RULER) return -1;
      return this.sliceAt(line.row, this.toTime(px), 3 * (this.t1 - this.t0) / (this.width - this.gutter()));
    }

    sliceAt(row, t, slack) {
      const { start, end } = this;
      const i = F.firstAbove(end, row.first, row.last, t);
      if (i < row.last && start[i] <= t) return i;
      const near = [i - 1, i].filter(k => k >= row.first && k < row.last);
      const away = k => Math.max(start[k] - t, t - end[k], 0);
      near.sort((a, b) => away(a) - away(b));
      return near.length && away(near[0]) <= slack ? near[0] : -1;
    }

    duration(i) {
      const true_ = this.clipped.get(i);
      return true_ === undefined ? this.end[i] - this.start[i] : true_;
    }

    isStrip(i) {
      return this.strips.some(([a, b]) => i >= a && i < b);
    }

    /** Where a slice stands in the columns of the second blob, which leave out the strips. */
    realIndex(i) {
      let before = 0;
      for (const [a, b] of this.strips) if (b <= i) before += b - a;
      return i - before;
    }

    pageIndex(real) {
      let i = real;
      for (const [a, b] of this.strips) if (a <= i) i += b - a;
      return i;
    }

    async select(i, go) {
      this.selected = i;
      this.arrows = [];
      if (i < 0) { this.explain(); this.request(); return; }
      const row = this.rowOf(i);
      if (go) {
        if (row.track.group.closed || row.level >= row.track.open) {
          row.track.group.closed = false;
          row.track.open = Math.max(row.track.open, row.level + 1);
          this.placeLines();
        }
        this.reveal(this.lineOfRow.get(row));
        const width = this.t1 - this.t0, mid = (this.start[i] + this.end[i]) / 2, slice = this.end[i] - this.start[i];
        if (slice > width || slice < width / 400) this.show(...F.around(this.start[i], this.end[i], 1.5), true);
        else if (mid < this.t0 || mid > this.t1) this.show(mid - width / 2, mid + width / 2, true);
      }
      this.request();
      if (!this.details) await this.unpackDetails();
      if (this.selected === i) { this.explain(); this.request(); }
    }

    async unpackDetails() {
      const raw = await island("blob-details");
      const cut = raw.indexOf(0);
      const head = JSON.parse(new TextDecoder().decode(raw.subarray(0, cut)));
      let at = cut + 1;
      const columns = head.columns.map(([name, n, width]) => {
        const values = F.readPlanes(raw, at, n, width);
        at += n * width;
        return [name, values];
      });
      const byName = Object.fromEntries(columns.slice(0, 6));
      F.accumulate(byName.linked);
      for (let k = 0; k < byName.child.length; k++) byName.child[k] = F.unzigzag(byName.child[k]);
      for (const name of ["launch", "correlation", "external"]) F.accumulate(byName[name], F.unzigzag);
      let next = 6;
      const gaps = head.gaps.map(([first, many]) => {
        const endedBy = F.accumulate(columns[next++][1], F.unzigzag), hostRow = F.accumulate(columns[next++][1], F.unzigzag);
        return { first, last: first + many, endedBy, hostRow, gap: columns[next++][1] };
      });
      this.details = { head, ...byName, gaps };
    }

    // -- saying what was picked ----------------------------------------------------------------------

    explain() {
      const panel = this.panel, i = this.selected;
      panel.replaceChildren();
      if (i < 0) {
        panel.append(node("p", "more", "Click a slice for its name, times, arguments and launch. Search with /, all keys under “Keys”."));
        return;
      }
      const row = this.rowOf(i), name = this.code[i], kind = this.layout.kinds[this.kinds[name]];
      panel.append(node("h3", "", this.kinds[name] === GAP_KIND ? "idle gap: " + this.names[name].replaceAll("_", " ") : this.names[name]));
      const facts = node("dl"), links = node("dl");
      const put = (list, key, value) => { list.append(node("dt", "", key)); const dd = node("dd"); dd.append(value); list.append(dd); };
      put(facts, "kind", kind + ", " + row.track.title);
      put(facts, "start", F.exact(this.start[i] - this.full[0]) + "  (" + F.duration(this.start[i] - this.full[0]) + ")");
      put(facts, "duration", F.exact(this.duration(i)) + "  (" + F.duration(this.duration(i)) + ")");
      if (this.details) {
        if (!this.isStrip(i)) this.explainSpan(i, row, facts, links, put);
        else if (kind === "idle gap") this.explainGap(i, links, put);
      }
      if (row.track.kind === "finding") put(links, "finding", this.button("show", () => this.onFinding && this.onFinding(row.track.finding)));
      const cols = node("div", "cols");
      cols.append(facts);
      if (links.childElementCount) cols.append(links);
      panel.append(cols);
      panel.scrollTop = 0;
    }

    explainSpan(i, row, facts, links, put) {
      const d = this.details, at = this.realIndex(i), host = row.track.kind !== "stream";
      if (host) {
        const self = this.duration(i) - this.drawnChildren(i, row) - d.child[at];
        put(facts, "self time", F.exact(self) + "  (" + F.duration(self) + ")");
      }
      const id = name => d.head[name + "Text"][at] || (d[name][at] ? String(d[name][at]) : "");
      if (id("correlation")) put(facts, "correlation", id("correlation"));
      if (id("external")) put(facts, "External id", id("external"));
      const launched = F.firstAbove(d.linked, 0, d.linked.length, i) - 1;
      if (launched >= 0 && d.linked[launched] === i && d.launch[launched] >= 0) {
        const from = d.launch[launched];
        put(links, "launched by", this.sliceButton(from));
        put(links, "launch to start", F.exact(this.start[i] - this.start[from]));
        this.arrows.push([from, i]);
      } else if (!host) {
        const known = launched >= 0 && d.linked[launched] === i;
        put(links, "launched by", known ? "n/a: its launch is not drawn on this page" : "n/a: its launch is not in the recording");
      }
      const works = [];
      let many = 0;
      if (host) for (let k = 0; k < d.launch.length; k++) if (d.launch[k] === i) { many++; if (works.length < 12) works.push(d.linked[k]); }
      if (works.length) {
        const list = node("span");
        works.forEach((w, n) => { if (n) list.append(node("br")); list.append(this.sliceButton(w)); });
        if (many > works.length) list.append(node("br"), `and ${F.count(many - works.length)} more`);
        put(links, many > 1 ? `launched ${F.count(many)}` : "launched", list);
        for (const w of works) this.arrows.push([i, w]);
      }
      if (host && row.level > 0) {
        const list = node("span");
        this.ancestors(i, row).slice(0, 8).forEach((a, n) => { if (n) list.append(node("br")); list.append(this.sliceButton(a)); });
        put(links, "inside", list);
      }
      const { keys, sets, skipped } = d.head.args;
      for (const [key, value] of pairs(sets[d.args[at]] || [])) put(facts, keys[key].key, keys[key].values[value]);
      if (skipped.length) put(facts, "left out", skipped.join(", ") + " (too many distinct values for this page)");
    }

    explainGap(i, links, put) {
      const part = this.details.gaps.find(g => i >= g.first && i < g.last);
      if (!part) return;
      const at = i - part.first;
      put(links, "meaning", this.layout.classText[this.names[this.code[i]]] || "n/a");
      put(links, "whole gap", F.exact(part.gap[at]) + "  (" + F.duration(part.gap[at]) + ")");
      if (part.hostRow[at] >= 0) put(links, "host", this.sliceButton(part.hostRow[at]));
      if (part.endedBy[at] >= 0) put(links, "ended by", this.sliceButton(part.endedBy[at]));
    }

    /** Drawn time of the slices one level down that start inside a slice; `child` holds what is missing to the true sum. */
    drawnChildren(i, row) {
      const below = row.track.lines[row.level + 1];
      if (!below) return 0;
      const first = F.firstNotBelow(this.start, below.first, below.last, this.start[i]);
      const last = F.firstNotBelow(this.start, below.first, below.last, this.end[i]);
      return last > first ? this.sum[last] - this.sum[first] : 0;
    }

    ancestors(i, row) {
      const out = [];
      for (let level = row.level - 1; level >= 0; level--) {
        const up = row.track.lines[level], k = F.firstAbove(this.end, up.first, up.last, this.start[i]);
        if (k < up.last && this.start[k] <= this.start[i]) out.push(k);
      }
      return out;
    }

    button(text, action) {
      const b = node("button", "", text);
      b.type = "button";
      b.addEventListener("click", action);
      return b;
    }

    sliceButton(i) {
      return this.button(this.label(this.code[i]) + "  " + F.duration(this.duration(i)), () => { this.select(i, true); this.canvas.focus({ preventScroll: true }); });
    }

    legend() {
      const list = document.getElementById("tl-legend"), used = new Map();
      const style = getComputedStyle(document.documentElement), light = parseFloat(style.getPropertyValue("--slice-light"));
      this.kinds.forEach((kind, i) => { if (kind < GAP_KIND || kind === FINDING_KIND) used.set(kind, i); });
      list.replaceChildren();
      const put = (text, colour) => {
        const li = node("li"), chip = node("i", "chip");
        chip.style.background = colour;
        li.append(chip, node("span", "", text));
        list.append(li);
      };
      for (const kind of [...used.keys()].sort((a, b) => a - b)) {
        const name = this.layout.kinds[kind], [h, s] = HUES[name] || HUES.other;
        put(name, `hsl(${h} ${s}% ${light}%)`);
      }
      this.names.forEach((name, i) => { if (this.kinds[i] === GAP_KIND) put("idle: " + name.replaceAll("_", " "), `rgb(${this.colours[i].join(" ")})`); });
    }

    // -- search --------------------------------------------------------------------------------------

    search(query) {
      this.matches = F.matchNames(this.names, query);
      this.found = null;
      this.request();
      if (!this.matches) return null;
      const found = [];
      let many = 0;
      for (let i = 0; i < this.code.length; i++) if (this.matches[this.code[i]]) { many++; if (found.length < 200000) found.push(i); }
      found.sort((a, b) => this.start[a] - this.start[b]);
      this.found = found;
      return { slices: many, names: this.matches.reduce((a, b) => a + b, 0) };
    }

    /** The match after (or before) the selected slice, else after the left edge of the window. */
    step(forward) {
      const { found } = this;
      if (!found || !found.length) return;
      let at = found.indexOf(this.selected);
      if (at >= 0) at += forward ? 1 : -1;
      else {
        at = found.findIndex(i => this.start[i] >= this.t0);
        if (at < 0) at = 0; else if (!forward) at -= 1;
      }
      this.select(found[(at + found.length) % found.length], true);
    }

    // -- hands and keys ------------------------------------------------------------------------------

    listen() {
      const { canvas, scroll, overview } = this;
      new ResizeObserver(() => this.resize()).observe(scroll);
      scroll.addEventListener("scroll", () => this.request(), { passive: true });
      let pageScrolled = 0;
      root.addEventListener("scroll", () => { pageScrolled = performance.now(); }, { passive: true });
      canvas.addEventListener("wheel", e => this.wheel(e, pageScrolled), { passive: false });
      canvas.addEventListener("pointerdown", e => this.down(e));
      canvas.addEventListener("pointermove", e => this.move(e));
      canvas.addEventListener("pointerup", e => this.up(e));
      canvas.addEventListener("pointercancel", e => { this.pointers.delete(e.pointerId); this.drag = null; });
      canvas.addEventListener("pointerleave", () => { this.hover = null; canvas.title = ""; this.request(); });
      canvas.addEventListener("dblclick", e => { const i = this.hit(e.offsetX, e.offsetY); if (i >= 0) this.show(...F.around(this.start[i], this.end[i], 0.1), true); });
      canvas.addEventListener("keydown", e => this.key(e));
      this.pointers = new Map();
      const jump = e => {
        const g = this.gutter(), [a, b] = this.full, t = a + (e.offsetX - g) * (b - a) / (overview.clientWidth - g);
        const half = (this.t1 - this.t0) / 2;
        this.show(t - half, t + half);
      };
      overview.addEventListener("pointerdown", e => { overview.setPointerCapture(e.pointerId); jump(e); });
      overview.addEventListener("pointermove", e => { if (e.buttons) jump(e); });
    }

    wheel(e, pageScrolled) {
      // a page scroll that runs onto the canvas goes on as one
      if (performance.now() - pageScrolled < 250) return;
      if (e.altKey || (e.offsetX < this.gutter() && !e.ctrlKey)) {
        if (e.altKey) { e.preventDefault(); this.scroll.scrollTop += e.deltaY; }
        return;
      }
      e.preventDefault();
      const unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? this.view : 1;
      const sideways = e.shiftKey ? e.deltaY || e.deltaX : Math.abs(e.deltaX) > Math.abs(e.deltaY) ? e.deltaX : 0;
      if (sideways) this.pan(sideways * unit / (this.width - this.gutter()));
      else this.zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY * unit * (e.ctrlKey ? 0.01 : 0.002)))), e.offsetX);
    }

    down(e) {
      if (e.button) return;
      this.pointers.set(e.pointerId, [e.offsetX, e.offsetY]);
      this.canvas.setPointerCapture(e.pointerId);
      if (this.pointers.size === 2) {
        const [a, b] = [...this.pointers.values()];
        this.drag = { type: "pinch", width: Math.max(10, Math.abs(a[0] - b[0])), t0: this.t0, t1: this.t1, at: this.toTime((a[0] + b[0]) / 2) };
        return;
      }
      const measure = e.shiftKey || (e.offsetY < RULER && e.offsetX > this.gutter());
      this.drag = { type: measure ? "measure" : "pan", x: e.offsetX, y: e.offsetY, t0: this.t0, t1: this.t1, top: this.scroll.scrollTop, moved: false, touch: e.pointerType === "touch" };
      if (measure) this.range = [this.toTime(e.offsetX), this.toTime(e.offsetX)];
    }

    move(e) {
      const px = e.offsetX, py = e.offsetY;
      if (this.pointers.has(e.pointerId)) this.pointers.set(e.pointerId, [px, py]);
      const drag = this.drag;
      if (!drag) {
        this.hover = px > this.gutter() ? this.toTime(px) : null;
        const line = this.lineAt(py);
        this.canvas.style.cursor = line && (line.type === "more" || (line.type === "head" && line.group.tracks.length)) && py > RULER ? "pointer" : "default";
        this.tip(px, py, line);
        this.request();
        return;
      }
      if (drag.type === "pinch") {
        const [a, b] = [...this.pointers.values()], now = Math.max(10, Math.abs(a[0] - b[0])), factor = drag.width / now;
        this.show(drag.at - (drag.at - drag.t0) * factor, drag.at + (drag.t1 - drag.at) * factor);
        return;
      }
      if (Math.abs(px - drag.x) + Math.abs(py - drag.y) > 3) drag.moved = true;
      if (!drag.moved) return;
      if (drag.type === "measure") { this.range[1] = this.toTime(px); this.request(); return; }
      const by = (drag.x - px) * (drag.t1 - drag.t0) / (this.width - this.gutter());
      this.show(drag.t0 + by, drag.t1 + by);
      if (!drag.touch) this.scroll.scrollTop = drag.top + drag.y - py;
    }

    up(e) {
      this.pointers.delete(e.pointerId);
      const drag = this.drag;
      this.drag = null;
      if (!drag || drag.type === "pinch") return;
      if (drag.type === "measure") { if (!drag.moved) this.range = null; this.request(); return; }
      if (!drag.moved) this.click(e.offsetX, e.offsetY);
    }

    click(px, py) {
      this.range = null;
      const line = this.lineAt(py);
      if (py > RULER && line && line.type === "more") {
        const { track } = line, most = this.layout.folded;
        track.open = track.open < track.lines.length ? Math.min(track.lines.length, Math.max(track.open, 1) + most) : this.openAtFirst(track);
        this.placeLines();
        this.request();
      } else if (py > RULER && line && line.type === "head" && line.group.tracks.length) {
        line.group.closed = !line.group.closed;
        this.placeLines();
        this.request();
      } else {
        const i = this.hit(px, py);
        this.select(i);
        const row = i >= 0 ? this.rowOf(i) : null;
        if (row && row.track.kind === "finding" && this.onFinding) {
          const place = this.layout.evidence[row.track.finding].rows.findIndex(([, a, b]) => a === this.start[i] && b >= this.end[i]);
          this.onFinding(row.track.finding, place < 0 ? undefined : place);
        }
      }
    }

    tip(px, py, line) {
      if (px < this.gutter()) { this.canvas.title = line && line.track ? line.track.title : ""; return; }
      const i = this.hit(px, py);
      this.canvas.title = i < 0 ? "" : this.label(this.code[i]) + "\n" + F.duration(this.duration(i));
    }

    key(e) {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const at = this.hover === null ? undefined : this.toX(this.hover), key = e.key.length === 1 ? e.key.toLowerCase() : e.key;
      const actions = {
        w: () => this.zoom(0.75, at), s: () => this.zoom(1 / 0.75, at), a: () => this.pan(-0.15), d: () => this.pan(0.15),
        "+": () => this.zoom(0.75, at), "=": () => this.zoom(0.75, at), "-": () => this.zoom(1 / 0.75, at), "0": () => this.fit(),
        f: () => this.selected >= 0 && this.show(...F.around(this.start[this.selected], this.end[this.selected], 0.1), true),
        z: () => this.range && this.show(Math.min(...this.range), Math.max(...this.range), true),
        n: () => this.step(true), p: () => this.step(false),
        "[": () => this.onPlace && this.onPlace(-1), "]": () => this.onPlace && this.onPlace(1),
        ArrowLeft: () => this.walk(-1), ArrowRight: () => this.walk(1), ArrowUp: () => this.climb(-1), ArrowDown: () => this.climb(1),
        PageDown: () => { this.scroll.scrollTop += this.view * 0.8; }, PageUp: () => { this.scroll.scrollTop -= this.view * 0.8; },
        Escape: () => { this.range = null; this.select(-1); if (this.onClear) this.onClear(); },
      };
      if (!actions[key]) return;
      e.preventDefault();
      actions[key]();
    }

    /** To the neighbour in the same row; without a selection, move the window. */
    walk(by) {
      if (this.selected < 0) return this.pan(0.15 * by);
      const row = this.rowOf(this.selected), next = this.selected + by;
      if (next >= row.first && next < row.last) this.select(next, true);
    }

    /** To the slice above or below at the same time; without a selection, to the first slice in sight. */
    climb(by) {
      const rows = this.lines.filter(l => l.type === "row").map(l => l.row);
      if (!rows.length) return;
      const slack = (this.t1 - this.t0) / 50;
      if (this.selected < 0) {
        const t = (this.t0 + this.t1) / 2, top = this.scroll.scrollTop;
        const line = this.lines.find(l => l.type === "row" && l.y >= top && this.sliceAt(l.row, t, slack * 25) >= 0);
        if (line) this.select(this.sliceAt(line.row, t, slack * 25), true);
        return;
      }
      const t = (this.start[this.selected] + this.end[this.selected]) / 2;
      for (let k = rows.indexOf(this.rowOf(this.selected)) + by; k >= 0 && k < rows.length; k += by) {
        const i = this.sliceAt(rows[k], t, slack);
        if (i >= 0) return this.select(i, true);
      }
    }
  }

  function node(tag, className, text) {
    const n = document.createElement(tag);
    if (className) n.className = className;
    if (text !== undefined) n.textContent = text;
    return n;
  }

  function* pairs(list) {
    for (let i = 0; i < list.length; i += 2) yield [list[i], list[i + 1]];
  }

  root.StallscopeTimeline = { Timeline, island, jsonIsland, node };
})(globalThis);
