// Unit tests of the page's pure helpers; run by tests/exporters/test_html_js.py, or with `node --test`.
"use strict";
const test = require("node:test");
const assert = require("node:assert");
const F = require("../../../exporters/assets/format.js");

test("durations have three digits and a unit; what is missing is n/a", () => {
  assert.deepStrictEqual([0, 950, 12345, 9100000, 2500000000].map(F.duration), ["0 ns", "950 ns", "12.3 us", "9.10 ms", "2.50 s"]);
  assert.strictEqual(F.duration(null), "n/a");
  assert.strictEqual(F.duration(undefined), "n/a");
  assert.strictEqual(F.duration(NaN), "n/a");
  assert.strictEqual(F.duration(-1500), "-1.50 us");
});

test("exact times keep every digit", () => {
  assert.strictEqual(F.exact(9007199254740991), "9,007,199,254,740,991 ns");
  assert.strictEqual(F.exact(-1234), "-1,234 ns");
  assert.strictEqual(F.exact(null), "n/a");
});

test("ruler ticks are round, in the window, and apart", () => {
  for (const [a, b] of [[0, 1], [0, 420e6], [1388500000, 1389000000], [0, 9e12], [123456789, 123456999]]) {
    const found = F.ticks(a, b, 1000, 96);
    assert.ok(found.length <= 12, `${a} ${b} ${found.length}`);
    assert.ok(found.every(t => t.at >= a && t.at <= b));
    assert.strictEqual(new Set(found.map(t => t.text)).size, found.length);
  }
  assert.deepStrictEqual(F.ticks(0, 50e6, 1000, 150).map(t => t.text), ["0 ms", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"]);
});

test("byte planes of every width", () => {
  for (const width of [1, 2, 3, 4, 5, 6]) {
    const values = [0, 1, 200, 2 ** (8 * width) - 1];
    const bytes = new Uint8Array(2 + values.length * width);
    values.forEach((v, i) => { for (let k = 0; k < width; k++) bytes[2 + k * values.length + i] = Math.floor(v / 256 ** k) % 256; });
    assert.deepStrictEqual([...F.readPlanes(bytes, 2, values.length, width)], values);
  }
  assert.deepStrictEqual([...F.readPlanes(new Uint8Array(0), 0, 0, 1)], []);
});

test("differences of either sign", () => {
  assert.deepStrictEqual([0, 1, 2, 3, 4].map(F.unzigzag), [0, -1, 1, -2, 2]);
  assert.deepStrictEqual([...F.accumulate(Float64Array.from([4, 1, 2]), F.unzigzag)], [2, 1, 2]);
  assert.deepStrictEqual([...F.accumulate(Float64Array.from([4, 1, 2]))], [4, 5, 7]);
});

test("searching agrees with a plain look", () => {
  const values = Float64Array.from([1, 3, 3, 3, 8, 9, 20]);
  for (let t = 0; t < 22; t++) {
    const above = [...values].findIndex(v => v > t), notBelow = [...values].findIndex(v => v >= t);
    assert.strictEqual(F.firstAbove(values, 0, 7, t), above < 0 ? 7 : above);
    assert.strictEqual(F.firstNotBelow(values, 0, 7, t), notBelow < 0 ? 7 : notBelow);
    assert.strictEqual(F.gallop(values, 0, 7, t), above < 0 ? 7 : above);
    assert.strictEqual(F.gallop(values, 2, 7, t), Math.max(2, above < 0 ? 7 : above));
  }
});

test("windows stay inside and keep their width", () => {
  assert.deepStrictEqual(F.clampWindow(-50, 50, 0, 1000, 20), [0, 100]);
  assert.deepStrictEqual(F.clampWindow(950, 1050, 0, 1000, 20), [900, 1000]);
  assert.deepStrictEqual(F.clampWindow(-500, 5000, 0, 1000, 20), [0, 1000]);
  assert.deepStrictEqual(F.clampWindow(500, 501, 0, 1000, 20), [490.5, 510.5]);
  assert.deepStrictEqual(F.clampWindow(0, 5, 0, 5, 20), [0, 20]);
});

test("short names", () => {
  assert.strictEqual(F.shortName("/a/b/model.py(12): forward"), "forward  model.py:12");
  assert.strictEqual(F.shortName("C:\\x\\model.py(12): forward"), "forward  model.py:12");
  assert.strictEqual(F.shortName("aten::mm"), "aten::mm");
  assert.strictEqual(F.shortName("void at::native::(anonymous namespace)::softmax<float, at::X<4>>(float*, int)"), "softmax<float, X<4>>");
  assert.strictEqual(F.shortName("nn.Module: Linear_0"), "nn.Module: Linear_0");
  assert.strictEqual(F.shortName(""), "");
});

test("search matches all words in any case", () => {
  assert.strictEqual(F.matchNames(["a"], "  "), null);
  assert.deepStrictEqual([...F.matchNames(["aten::MM", "aten::add", "mm"], "MM aten")], [1, 0, 0]);
  assert.deepStrictEqual([...F.matchNames(["a.*b"], ".*")], [1]);
});

test("cells sort by number, then text, with nothing last both ways", () => {
  const cells = [10, "b", null, 9, "a", ""];
  const sorted = down => [...cells].sort((a, b) => F.compareCells(a, b, down));
  assert.deepStrictEqual(sorted(false).slice(0, 4), [9, 10, "a", "b"]);
  assert.deepStrictEqual(sorted(true).slice(0, 4), [10, 9, "b", "a"]);
  assert.ok(sorted(true).slice(4).every(v => v === null || v === ""));
});

test("colours", () => {
  assert.deepStrictEqual(F.rgb("#ff8000"), [255, 128, 0]);
  assert.deepStrictEqual(F.rgb("rgb(1, 2, 3)"), [1, 2, 3]);
  assert.deepStrictEqual(F.rgb([0, 100, 50]), [255, 0, 0]);
  assert.deepStrictEqual(F.rgb([120, 100, 50]), [0, 255, 0]);
  assert.deepStrictEqual(F.mix([0, 0, 0], [100, 200, 50], 0.5), [50, 100, 25]);
});

test("base64", () => {
  assert.deepStrictEqual([...F.bytesOfBase64("AAEC/w==")], [0, 1, 2, 255]);
});
