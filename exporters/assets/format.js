// Pure helpers of the page: numbers to text, bytes to columns, searching, colours. No document, no state;
// loaded by the page as a script and by the unit tests as a module.
"use strict";
(function (root) {
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]];

  /** Nanoseconds as short text, three digits: 12345 -> "12.3 us". null and undefined are "n/a", never 0. */
  function duration(ns) {
    if (ns === null || ns === undefined || Number.isNaN(ns)) return "n/a";
    for (const [limit, unit] of units) {
      const value = ns / limit;
      if (Math.abs(value) >= 1) {
        return value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0) + " " + unit;
      }
    }
    return Math.round(ns) + " ns";
  }

  /** All digits: 1234567 -> "1,234,567 ns". */
  function exact(ns) {
    if (ns === null || ns === undefined || Number.isNaN(ns)) return "n/a";
    return count(Math.round(ns)) + " ns";
  }

  function count(n) {
    const text = String(Math.abs(n));
    return (n < 0 ? "-" : "") + text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  }

  /** 1, "slice" -> "1 slice"; 1234, "slice" -> "1,234 slices". */
  function plural(n, word) {
    return count(n) + " " + word + (n === 1 ? "" : "s");
  }

  /** Times of ruler ticks in [t0, t1], at least `minGap` pixels apart on `width` pixels, and how to print them. */
  function ticks(t0, t1, width, minGap) {
    const raw = (t1 - t0) * minGap / Math.max(width, 1);
    const power = Math.pow(10, Math.floor(Math.log10(Math.max(raw, 1e-9))));
    const step = Math.max(1, [1, 2, 5, 10].map(m => m * power).find(s => s >= raw * 0.999999));
    const [scale, unit] = units.find(([limit]) => Math.max(Math.abs(t0), Math.abs(t1)) >= limit && step >= limit / 1e6) || [1, "ns"];
    const digits = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
    const out = [];
    for (let i = Math.ceil(t0 / step); i * step <= t1 && out.length < 500; i++) {
      out.push({ at: i * step, text: (i * step / scale).toFixed(digits) + " " + unit });
    }
    return out;
  }

  function bytesOfBase64(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const raw = atob(text);
    const out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  }

  /** n unsigned integers whose bytes lie plane by plane from `offset` on; exact below 2^53. */
  function readPlanes(bytes, offset, n, width) {
    const out = new Float64Array(n);
    const low = width === 4 ? 4 : Math.min(width, 3);
    const b = bytes.subarray(offset, offset + n * width);
    if (low === 1) for (let i = 0; i < n; i++) out[i] = b[i];
    else if (low === 2) for (let i = 0; i < n; i++) out[i] = b[i] | b[n + i] << 8;
    else if (low === 3) for (let i = 0; i < n; i++) out[i] = b[i] | b[n + i] << 8 | b[2 * n + i] << 16;
    else for (let i = 0; i < n; i++) out[i] = (b[i] | b[n + i] << 8 | b[2 * n + i] << 16 | b[3 * n + i] << 24) >>> 0;
    for (let k = low, factor = Math.pow(256, low); k < width; k++, factor *= 256) {
      const at = k * n;
      for (let i = 0; i < n; i++) if (b[at + i]) out[i] += b[at + i] * factor;
    }
    return out;
  }

  /** 0, 1, 2, 3 ... back to 0, -1, 1, -2 ... */
  function unzigzag(v) {
    return v % 2 ? -(v + 1) / 2 : v / 2;
  }

  /** Running sums in place; `decode` is applied to each difference first. */
  function accumulate(values, decode) {
    let sum = 0;
    for (let i = 0; i < values.length; i++) values[i] = sum += decode ? decode(values[i]) : values[i];
    return values;
  }

  /** First index in [lo, hi) whose value is > t (values rise), else hi. */
  function firstAbove(values, lo, hi, t) {
    while (lo < hi) {
      const mid = (lo + hi) >>> 1;
      if (values[mid] <= t) lo = mid + 1; else hi = mid;
    }
    return lo;
  }

  /** First index in [lo, hi) whose value is >= t, else hi. */
  function firstNotBelow(values, lo, hi, t) {
    while (lo < hi) {
      const mid = (lo + hi) >>> 1;
      if (values[mid] < t) lo = mid + 1; else hi = mid;
    }
    return lo;
  }

  /** firstAbove where the answer is likely close to `lo`. */
  function gallop(values, lo, hi, t) {
    let step = 1, at = lo;
    while (at + step < hi && values[at + step] <= t) { at += step; step *= 2; }
    return firstAbove(values, at, Math.min(hi, at + step + 1), t);
  }

  /** A window inside [start, end], no narrower than `least`; its width is kept where that is possible. */
  function clampWindow(t0, t1, start, end, least) {
    const full = Math.max(end - start, least);
    const width = Math.min(Math.max(t1 - t0, least), full);
    const mid = (t0 + t1) / 2;
    let from = t1 - t0 === width ? t0 : mid - width / 2;
    from = Math.max(start, Math.min(from, start + full - width));
    return [from, from + width];
  }

  /** A span with some room on both sides. */
  function around(from, to, room) {
    const pad = Math.max((to - from) * room, 50);
    return [from - pad, to + pad];
  }

  function hash(text) {
    let h = 2166136261;
    for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
    return h >>> 0;
  }

  /** "file.py(12): f" with folders -> "f  file.py:12"; C++ kernels without return type, namespaces, parameters. */
  function shortName(name) {
    const frame = /^(?:.*[/\\])?([^/\\(]+)\((\d+)\): (.+)$/.exec(name);
    if (frame) return frame[3] + "  " + frame[1] + ":" + frame[2];
    if (!name.includes("::") && !name.startsWith("void ")) return name;
    if (/^[a-z_0-9]+::[A-Za-z_0-9.]+$/.test(name)) return name;
    const text = name.replace(/^void /, "").replaceAll("(anonymous namespace)::", "");
    let depth = 0, cut = text.length;
    for (let i = 0; i < text.length; i++) {
      if (text[i] === "<") depth++;
      else if (text[i] === ">" && text[i - 1] !== "-") depth--;
      else if (text[i] === "(" && depth === 0 && i > 0) { cut = i; break; }
    }
    const angle = text.indexOf("<");
    const head = text.slice(0, angle >= 0 && angle < cut ? angle : cut);
    return head.slice(head.lastIndexOf("::") + (head.includes("::") ? 2 : 0)) + text.slice(head.length, cut).replace(/(?:\b\w+::)+/g, "");
  }

  /** 1 for each name that holds all words of the query, in any case; null for an empty query. */
  function matchNames(names, query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return null;
    const out = new Uint8Array(names.length);
    for (let i = 0; i < names.length; i++) {
      const name = names[i].toLowerCase();
      out[i] = words.every(word => name.includes(word)) ? 1 : 0;
    }
    return out;
  }

  /** Order of two cells: numbers before texts before nothing ("" or null), in both directions. */
  function compareCells(a, b, descending) {
    const none = v => v === null || v === undefined || v === "";
    if (none(a) || none(b)) return none(a) - none(b);
    const kinds = (typeof a === "string") - (typeof b === "string");
    if (kinds) return kinds;
    const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return descending ? -order : order;
  }

  /** "#rrggbb", "rgb(...)" or [h, s, l] (degrees, percent) as [r, g, b]. */
  function rgb(colour) {
    if (Array.isArray(colour)) {
      const [h, s, l] = [colour[0] / 60, colour[1] / 100, colour[2] / 100];
      const a = s * Math.min(l, 1 - l);
      const part = n => { const k = (n + h * 2) % 12; return Math.round(255 * (l - a * Math.max(-1, Math.min(k - 3, 9 - k, 1)))); };
      return [part(0), part(8), part(4)];
    }
    const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(colour.trim());
    if (hex) return hex.slice(1).map(x => parseInt(x, 16));
    return (colour.match(/[\d.]+/g) || [0, 0, 0]).slice(0, 3).map(Number);
  }

  /** Two colours mixed: share 0 is all `a`, 1 all `b`. */
  function mix(a, b, share) {
    return a.map((v, i) => Math.round(v + (b[i] - v) * share));
  }

  const api = { duration, exact, count, plural, ticks, bytesOfBase64, readPlanes, unzigzag, accumulate, firstAbove, firstNotBelow, gallop,
    clampWindow, around, hash, shortName, matchNames, compareCells, rgb, mix };
  root.StallscopeFormat = api;
  if (typeof module !== "undefined" && module.exports) module.exports = api;
})(typeof globalThis !== "undefined" ? globalThis : this);
