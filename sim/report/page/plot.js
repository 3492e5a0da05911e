"use strict";
// What the charts are drawn with: elements, scales, ticks and words. Text from
// the data only ever becomes text nodes.

function make(el, attrs, kids) {
  for (const [k, v] of Object.entries(attrs || {})) if (v !== undefined && v !== "") el.setAttribute(k, v);
  el.append(...kids.filter(k => k !== null && k !== undefined));
  return el;
}
const svg = (tag, attrs, ...kids) => make(document.createElementNS("http://www.w3.org/2000/svg", tag), attrs, kids);
const html = (tag, attrs, ...kids) => make(document.createElement(tag), attrs, kids);

function canvas(w, h, label) {
  return svg("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, role: "img", "aria-label": label });
}
const text = (x, y, s, cls = "", anchor = "start") => svg("text", { x: round(x), y: round(y), class: cls, "text-anchor": anchor }, s);
const line = (x1, y1, x2, y2, cls) => svg("line", { x1: round(x1), y1: round(y1), x2: round(x2), y2: round(y2), class: cls });
const round = v => Math.round(v * 10) / 10;

// path joins points; a null point breaks the line.
function path(points) {
  let d = "", pen = "M";
  for (const p of points) {
    if (!p) { pen = "M"; continue; }
    d += pen + round(p[0]) + " " + round(p[1]);
    pen = "L";
  }
  return d;
}

// area fills between two series of equal length, leaving gaps out.
function area(x, low, high) {
  let d = "", run = [];
  const flush = () => {
    if (run.length > 1) d += path(run.map(i => [x(i), high(i)])) + path(run.reverse().map(i => [x(i), low(i)])).replace("M", "L") + "Z";
    run = [];
  };
  for (let i = 0; i < x.n; i++) Number.isFinite(low(i)) && Number.isFinite(high(i)) ? run.push(i) : flush();
  flush();
  return d;
}

function scale(kind, d0, d1, r0, r1) {
  const to = kind === "log" ? Math.log : v => v, from = kind === "log" ? Math.exp : v => v;
  const a = to(d0), b = to(d1), k = b === a ? 0 : (r1 - r0) / (b - a);
  const f = v => r0 + (to(v) - a) * k;
  f.start = r0;
  f.end = r1;
  f.invert = r => from(a + (r - r0) / (k || 1));
  f.ticks = n => kind === "log" ? logTicks(d0, d1, n) : linearTicks(d0, d1, n);
  return f;
}

function linearTicks(lo, hi, n) {
  const raw = (hi - lo) / Math.max(1, n), base = 10 ** Math.floor(Math.log10(raw || 1));
  const step = base * [1, 2, 2.5, 5, 10].find(m => base * m >= raw * 0.999);
  const out = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++) out.push(Number((i * step).toPrecision(12)));
  return out;
}

function logTicks(lo, hi, n) {
  if (hi / lo < 4) return linearTicks(lo, hi, n);
  for (const multiples of [[1, 1.5, 2, 3, 4, 5, 7], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
    const out = [];
    for (let e = Math.floor(Math.log10(lo)); e <= Math.ceil(Math.log10(hi)); e++) {
      for (const m of multiples) {
        const v = Number(`${m}e${e}`);
        if (v >= lo * 0.999 && v <= hi * 1.001) out.push(v);
      }
    }
    if (out.length <= n || multiples.length === 1) return out.filter((_, i) => out.length <= n || i % Math.ceil(out.length / n) === 0);
  }
}

// extent of the known numbers, or the fallback.
function extent(values, fallback) {
  let lo = Infinity, hi = -Infinity;
  for (const v of values) if (v !== null && v !== undefined && Number.isFinite(v)) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
  return lo <= hi ? [lo, hi] : fallback;
}

// digits writes v with three significant digits and no exponent.
function digits(v) {
  const a = Math.abs(v);
  return a >= 100 || a === 0 ? v.toFixed(0) : a >= 10 ? v.toFixed(1) : a >= 1 ? v.toFixed(2) : v.toPrecision(2);
}
const short = v => String(Number(v.toPrecision(4)));
const known = v => v !== null && v !== undefined;
const words = {
  seconds: v => !known(v) ? "–" : v < 1e-3 ? digits(v * 1e6) + " µs" : v < 1 ? digits(v * 1e3) + " ms" : digits(v) + " s",
  secondsTick: v => v === 0 ? "0" : v < 1e-3 ? short(v * 1e6) + " µs" : v < 1 ? short(v * 1e3) + " ms" : short(v) + " s",
  percent: v => !known(v) ? "–" : (100 * v).toFixed(1) + " %",
  percentTick: v => short(100 * v) + " %",
  plain: v => !known(v) ? "–" : digits(v),
};

// widthOf measures a text, fit cuts it to a width.
const pen = document.createElement("canvas").getContext("2d");
function widthOf(s, font = 12) {
  pen.font = `${font}px system-ui, "Liberation Sans", sans-serif`;
  return pen.measureText(s).width;
}
function fit(s, width, font = 12) {
  if (widthOf(s, font) <= width) return s;
  while (s.length > 1 && widthOf(s + "…", font) > width) s = s.slice(0, -1);
  return s + "…";
}

// spread pushes labels apart so that neighbours have room, keeping their order.
function spread(labels, room, lo, hi) {
  labels.sort((a, b) => a.y - b.y);
  for (let i = 0; i < labels.length; i++) labels[i].y = Math.max(labels[i].y, i ? labels[i - 1].y + room : lo);
  for (let i = labels.length - 1; i >= 0; i--) labels[i].y = Math.min(labels[i].y, i < labels.length - 1 ? labels[i + 1].y - room : hi);
}

// xAxis draws about n lines upright, and their words where those have room.
function xAxis(root, x, n, top, bottom, words) {
  let free = -Infinity;
  for (const t of x.ticks(n)) {
    root.append(line(x(t), top, x(t), bottom, "grid"));
    const s = words(t), half = widthOf(s, 11) / 2, at = Math.max(half, Math.min(x(t), root.viewBox.baseVal.width - half));
    if (at - half < free) continue;
    root.append(text(at, bottom + 15, s, "soft num", "middle"));
    free = at + half + 8;
  }
}

// panels draws rows with labels, and marks in as many columns as fit. A panel
// has title, note, kind, domain, tick, draw(row, x, y, put), words(row) and room for them.
function panels(into, width, label, rows, all) {
  const rowH = 20, head = 40, foot = 24;
  const names = Math.min(190, 14 + Math.max(...rows.map(r => widthOf(r.label, r.ours ? 13 : 12))));
  const fits = Math.max(1, Math.min(all.length, Math.floor((width - names) / (160 + Math.max(...all.map(p => p.room))))));
  const per = Math.ceil(all.length / Math.ceil(all.length / fits));
  for (let from = 0; from < all.length; from += per) {
    const some = all.slice(from, from + per), gap = 26;
    const each = Math.min(520, (width - names) / some.length - gap);
    const root = canvas(width, head + rows.length * rowH + foot, label);
    rows.forEach((r, i) => {
      const y = head + i * rowH;
      if (r.ours) root.append(svg("rect", { x: 0, y, width: Math.min(width, names + some.length * (each + gap)), height: rowH, class: "band" }));
      root.append(text(names - 12, y + 14, fit(r.label, names - 14), r.ours ? "strong" : "", "end"));
    });
    some.forEach((p, j) => {
      const x0 = names + j * (each + gap), x1 = x0 + each - p.room, bottom = head + rows.length * rowH;
      const x = scale(p.kind, ...p.domain, x0 + 6, x1 - 6);
      root.append(text(x0, 13, p.title, "strong"), text(x0, 28, fit(p.note, each, 11), "soft"));
      xAxis(root, x, Math.floor((x1 - x0) / 40), head, bottom, p.tick);
      root.append(line(x0, bottom, x1, bottom, "axis"));
      if (known(p.at)) root.append(line(x(p.at), head - 4, x(p.at), bottom, p.atClass));
      rows.forEach((r, i) => {
        const y = head + i * rowH + rowH / 2;
        p.draw(r, x, y, (...els) => root.append(...els));
        root.append(text(x0 + each, y + 4, p.words(r), "num" + (r.ours ? " strong" : ""), "end"));
      });
    });
    into.append(root);
  }
}
