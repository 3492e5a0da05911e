"use strict";
// The page: what is chosen, and one function for each figure.

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const policies = data.policies, first = policies.map(p => p.shown);
  const at = id => document.getElementById(id);
  const plots = at("plots");
  let scene = data.scenarios[0], printing = false;

  const hue = p => `var(--p${p.hue})`;
  const dash = p => ["", "7 3", "2 2.5", "9 3 2 3", "12 2.5", "6 2 1 2 1 2"][p.dash];
  const ours = p => p.hue === 0;
  const stroke = p => ({ style: `stroke:${hue(p)}`, "stroke-dasharray": dash(p), "data-p": policies.indexOf(p) });
  const rows = () => scene.rows.map(r => ({ ...r, policy: policies[r.p], label: policies[r.p].name, ours: ours(policies[r.p]) }));
  const shown = has => rows().filter(r => r.policy.shown && r.pic && has(r.pic));

  function section(title, how, marked = false) {
    const s = html("section", { class: "plot" }, html("h2", {}, title, marked && scene.single ? html("small", {}, html("strong", { class: "mark" }, "single run")) : null), html("p", { class: "how" }, how));
    plots.append(s);
    return s;
  }
  const inner = () => printing ? 1030 : plots.clientWidth;

  // What a reader wants first: who is fast, who keeps its promises, and why.
  function glance() {
    const all = rows();
    if (!all.length) return;
    const s = section("At a glance", (scene.single ? "A dot is the mean of the one run" : "A dot is the mean over the seeds and its bar the 95 % interval") + "; the thin line runs from p50 to p99. Dashed: the bound, which no placement can pass.", true);
    const dot = (r, x, y, v) => known(v) && svg("circle", { cx: round(x(v)), cy: y, r: r.ours ? 5 : 4, style: `fill:${hue(r.policy)}`, "data-p": r.p });
    const bar = (r, x, y, v) => known(v.v) && known(v.ci) && svg("line", { x1: round(Math.max(x(v.v - v.ci) || x.start, x.start)), x2: round(Math.min(x(v.v + v.ci), x.end)), y1: y, y2: y, "stroke-width": 3, style: `stroke:${hue(r.policy)}`, "data-p": r.p, opacity: .55 });
    const put = (add, ...els) => add(...els.filter(Boolean));
    const span = extent(all.flatMap(r => [r.ttft.v, r.p50, r.p99]).concat(scene.bound.ttft).filter(v => v > 0), [0.1, 1]);
    const good = extent(all.flatMap(r => [r.goodput.v - r.goodput.ci, r.goodput.v + r.goodput.ci]), [0, 1]);
    const cov = extent(all.flatMap(r => [r.cov.v + r.cov.ci]), [0, 1]);
    const hits = extent(all.map(r => r.hbm + r.tier).concat(scene.bound.cached), [0, 1]);
    const pm = (v, percent) => !known(v.v) ? "–" : (percent ? words.percent(v.v) : v.v.toFixed(3)) + (known(v.ci) ? " ±" + (percent ? (100 * v.ci).toFixed(1) : v.ci.toFixed(3)) : "");
    const box = html("div"); s.append(box);
    panels(box, inner(), "Mean TTFT, goodput, cached tokens and load CoV of each policy", all, [
      { title: "TTFT", note: "mean; thin line p50 to p99", kind: "log", domain: [span[0] * 0.9, span[1] * 1.1], tick: words.secondsTick, room: 58, at: scene.bound.ttft > 0 ? scene.bound.ttft : null, atClass: "bound",
        draw: (r, x, y, add) => put(add, r.p50 > 0 && svg("line", { x1: round(x(r.p50)), x2: round(x(r.p99)), y1: y, y2: y, style: `stroke:${hue(r.policy)}`, "data-p": r.p }), r.ttft.v > 0 && bar(r, x, y, r.ttft), r.ttft.v > 0 && dot(r, x, y, r.ttft.v)),
        words: r => words.seconds(r.ttft.v) },
      { title: "Goodput", note: scene.goal_ttft > 0 ? `TTFT < ${words.secondsTick(scene.goal_ttft)} and TPOT < ${words.secondsTick(scene.goal_tpot)}` : "share within both objectives", kind: "linear", domain: [Math.max(0, Math.floor(good[0] * 20) / 20 - 0.02), Math.min(1.01, good[1] + 0.02)], tick: words.percentTick, room: 86,
        draw: (r, x, y, add) => put(add, bar(r, x, y, r.goodput), dot(r, x, y, r.goodput.v)), words: r => pm(r.goodput, true) },
      { title: "Prompt tokens cached", note: "dark: in HBM, light: loaded from a tier", kind: "linear", domain: [0, hits[1] * 1.06 || 1], tick: words.percentTick, room: 54, at: scene.bound.cached, atClass: "bound",
        draw: (r, x, y, add) => put(add, svg("rect", { x: x(0), y: y - 5, width: round(x(r.hbm || 0) - x(0)), height: 10, style: "fill:var(--hbm)" }), svg("rect", { x: round(x(r.hbm || 0)), y: y - 5, width: round(x(r.tier || 0) - x(0)), height: 10, style: "fill:var(--tier)" })),
        words: r => words.percent(r.hbm + r.tier) },
      { title: "Load CoV", note: "std / mean over workers of busy time per 10 s", kind: "linear", domain: [0, cov[1] * 1.08 || 1], tick: short, room: 88,
        draw: (r, x, y, add) => put(add, bar(r, x, y, r.cov), dot(r, x, y, r.cov.v)), words: r => pm(r.cov) },
    ]);
    failed(s);
  }

  // Latencies are of the requests that were answered, so say which were not.
  function failed(s) {
    const bad = rows().filter(r => r.failed > 0).map(r => `${r.label} ${short(r.failed)}`);
    if (bad.length) s.append(html("p", { class: "note" }, `Requests without a full answer, of ${scene.rows[0].requests}: ${bad.join(", ")}.`));
  }

  // Paired ratios, one column for each figure.
  function forest() {
    if (!scene.versus.length) return;
    const figures = [...new Set(scene.versus.map(v => v.f))], one = new Set(scene.versus.map(v => v.a)).size === 1;
    const pairs = new Map();
    for (const v of scene.versus) {
      const key = JSON.stringify([v.a, v.b]);
      if (!pairs.has(key)) pairs.set(key, { label: one ? v.b : `${v.a} / ${v.b}`, than: v.b, by: new Map() });
      pairs.get(key).by.set(v.f, v);
    }
    const s = section(one ? `${scene.versus[0].a} against each peer` : "Policies against each other",
      scene.single ? "Ratio of the two figures on one and the same seed. A single run: no interval, no claim."
        : "Ratio of the two figures, paired by seed, with its 95 % interval. Filled: the interval leaves out 1. Blue is better for the policy named first, orange worse.", true);
    const place = name => scene.rows.findIndex(r => policies[r.p].name === name);
    const decided = v => v.lo < v.hi && (v.lo > 1 || v.hi < 1);
    const colour = v => !decided(v) || !v.better ? "var(--soft)" : (v.r - 1) * v.better > 0 ? "var(--p0)" : "var(--p1)";
    const box = html("div"); s.append(box);
    panels(box, inner(), "Ratios with 95 % intervals", [...pairs.values()].sort((a, b) => place(a.than) - place(b.than)), figures.map(f => {
      const mine = scene.versus.filter(v => v.f === f), better = mine[0].better;
      const [lo, hi] = extent(mine.flatMap(v => [v.lo, v.hi, v.r]).filter(v => v > 0).concat(1), [0.5, 2]);
      const margin = Math.max(1.02, (hi / lo) ** 0.06);
      return { title: f[0].toUpperCase() + f.slice(1), note: better < 0 ? "ratio; left of 1 is better" : better > 0 ? "ratio; right of 1 is better" : "ratio", kind: "log", domain: [lo / margin, hi * margin], tick: short, room: 140, at: 1, atClass: "axis",
        draw: (r, x, y, add) => {
          const v = r.by.get(f);
          if (!v || !(v.r > 0)) return;
          if (v.lo > 0 && v.lo < v.hi) add(svg("line", { x1: round(x(v.lo)), x2: round(x(v.hi)), y1: y, y2: y, "stroke-width": 2, style: `stroke:${colour(v)}` }));
          add(svg("circle", { cx: round(x(v.r)), cy: y, r: 4, "stroke-width": 1.6, style: `stroke:${colour(v)};fill:${decided(v) ? colour(v) : "var(--paper)"}` }));
        },
        words: r => {
          const v = r.by.get(f);
          if (!v || !known(v.r)) return "–";
          const n = Math.abs(v.r - 1) < 0.02 && v.hi - v.lo < 0.02 ? 3 : 2; // near 1, a digit more
          return v.lo < v.hi ? `${v.r.toFixed(n)} [${v.lo.toFixed(n)}, ${v.hi.toFixed(n)}]` : v.r.toFixed(n);
        } };
    }));
  }

  // Distributions, with a key whose figures follow the pointer.
  function cdfs() {
    const s = html("div", { class: "pair" });
    const keys = [["ttft", "Time to first token"], ["tpot", "Time per output token"]].filter(([k]) => shown(p => p[k].length > 1).length);
    if (!keys.length) return;
    section("Distributions of latency", "Share of requests at least that fast; further left is better. First seed. Point at a plot to read every policy at that share. Grey: policies not picked above.").append(s);
    const across = !printing && window.innerWidth >= 1400 && keys.length > 1 ? (inner() - 36) / 2 : inner();
    for (const [k, title] of keys) s.append(cdf(k, title, across));
  }

  function quantile(q, at) {
    const i = at * (q.length - 1), a = q[Math.floor(i)], b = q[Math.ceil(i)];
    return known(a) && known(b) ? a + (b - a) * (i - Math.floor(i)) : null;
  }

  function cdf(k, title, width) {
    const mine = shown(p => p[k].length > 1).sort((a, b) => quantile(a.pic[k], .5) - quantile(b.pic[k], .5));
    const others = rows().filter(r => !r.policy.shown && r.pic && r.pic[k].length > 1);
    const beside = width >= 560, keyW = beside ? 290 : Math.min(width, 340), keyH = 22 + mine.length * 17;
    const left = 44, top = 26, right = beside ? width - keyW - 20 : width - 8, plotH = beside ? Math.max(270, keyH) : 270, bottom = top + plotH;
    const [lo, hi] = extent(mine.flatMap(r => [quantile(r.pic[k], .004), quantile(r.pic[k], .996)]).filter(v => v > 0), [0.01, 10]);
    const x = scale("log", lo === hi ? lo / 2 : lo, lo === hi ? hi * 2 : hi, left, right), y = scale("linear", 0, 1, bottom, top);
    const root = canvas(width, bottom + 26 + (beside ? 0 : keyH + 14), title + ", cumulative distribution by policy");
    root.append(text(0, 13, title, "strong"));
    for (const t of [0, .25, .5, .75, .9, 1]) root.append(line(left, y(t), right, y(t), t ? "grid" : "axis"), text(left - 6, y(t) + 4, words.percentTick(t), "soft num", "end"));
    xAxis(root, x, Math.floor((right - left) / 62), top, bottom, words.secondsTick);
    const curve = r => path(r.pic[k].map((v, i, q) => v > 0 ? [Math.min(Math.max(x(v), left), right), v >= lo * .999 && v <= hi * 1.001 ? y(i / (q.length - 1)) : null] : null).map(p => p && p[1] !== null ? p : null));
    for (const r of others) root.append(svg("path", { d: curve(r), class: "line context" }));
    for (const r of mine.toSorted((a, b) => a.ours - b.ours)) root.append(svg("path", { d: curve(r), class: "line" + (r.ours ? " ours" : ""), ...stroke(r.policy) }));

    const kx = beside ? right + 22 : 8, ky = beside ? top + 4 : bottom + 40, ends = [kx + keyW - 62, kx + keyW - 2];
    const heads = [text(ends[0], ky + 4, "p50", "soft", "end"), text(ends[1], ky + 4, "p99", "soft", "end")];
    root.append(...heads);
    const values = mine.map((r, i) => {
      const yy = ky + 22 + i * 17, two = ends.map(e => text(e, yy + 4, "", "num", "end"));
      root.append(svg("line", { x1: kx, x2: kx + 20, y1: yy, y2: yy, class: "line" + (r.ours ? " ours" : ""), ...stroke(r.policy) }),
        svg("g", { "data-p": r.p }, text(kx + 26, yy + 4, fit(r.label, keyW - 144), r.ours ? "strong" : ""), ...two));
      return two;
    });
    const cursor = line(left, 0, right, 0, "cursor"), dots = mine.map(r => svg("circle", { r: 3, style: `fill:${hue(r.policy)}`, "pointer-events": "none", "data-p": r.p }));
    const read = q => {
      heads[0].textContent = q === null ? "p50" : "";
      heads[1].textContent = q === null ? "p99" : "p" + (100 * q).toFixed(0);
      mine.forEach((r, i) => {
        values[i][0].textContent = q === null ? words.seconds(quantile(r.pic[k], .5)) : "";
        const v = quantile(r.pic[k], q === null ? .99 : q);
        values[i][1].textContent = words.seconds(v);
        if (q !== null && v >= lo && v <= hi) { dots[i].setAttribute("cx", x(v)); dots[i].setAttribute("cy", y(q)); }
        dots[i].setAttribute("visibility", q !== null && v >= lo && v <= hi ? "visible" : "hidden");
      });
      cursor.setAttribute("visibility", q === null ? "hidden" : "visible");
      if (q !== null) { cursor.setAttribute("y1", y(q)); cursor.setAttribute("y2", y(q)); }
    };
    read(null);
    root.append(cursor, ...dots);
    root.addEventListener("pointermove", e => {
      const box = root.getBoundingClientRect(), k = root.viewBox.baseVal.width / box.width;
      const py = (e.clientY - box.top) * k, px = (e.clientX - box.left) * k;
      read(py >= top && py <= bottom && px <= right ? Math.round(y.invert(py) * 100) / 100 : null);
    });
    root.addEventListener("pointerleave", () => read(null));
    return root;
  }

  // multiples draws the same small plot for each policy, over the same time.
  function multiples(into, mine, label, seriesLength, top, draw, summary, reading) {
    const total = inner(), gap = 18, n = Math.max(1, Math.min(mine.length, Math.floor((total + gap) / 240)));
    const w = Math.min(560, (total - gap * (n - 1)) / n), h = 112, left = 40, low = h - 18;
    const grid = html("div", { class: "multiples", style: `grid-template-columns:repeat(${n},${w}px)` });
    const end = Math.max(...mine.map(r => r.pic.dt * seriesLength(r.pic)));
    const time = scale("linear", 0, end, left, w - 6), y = scale("linear", 0, top, low, 6);
    const per = end > 7200 ? [3600, "h"] : end > 120 ? [60, "min"] : [1, "s"];
    const cells = mine.map((r, i) => {
      const root = canvas(w, h, `${label}: ${r.label}`);
      for (const t of y.ticks(2)) {
        root.append(line(left, y(t), w - 6, y(t), t ? "grid" : "axis"));
        if (i % n === 0) root.append(text(left - 5, y(t) + 4, words.percentTick(t), "soft num", "end"));
      }
      const ticks = linearTicks(0, end / per[0], 4);
      ticks.forEach((t, j) => root.append(text(time(t * per[0]), h - 3, short(t) + (j === ticks.length - 1 ? " " + per[1] : ""), "soft num", j ? j === ticks.length - 1 && time(t * per[0]) > w - 26 ? "end" : "middle" : "start")));
      const x = j => time((j + .5) * r.pic.dt);
      x.n = seriesLength(r.pic);
      draw(root, r, x, y, i, [left, w - 6]);
      const cursor = line(0, 6, 0, low, "cursor"), note = html("span", {}, summary(r));
      cursor.setAttribute("visibility", "hidden");
      root.append(cursor);
      grid.append(html("figure", { "data-p": r.p }, html("figcaption", {}, html("b", { class: r.ours ? "ours" : "", title: r.label }, r.label), note), root));
      return { r, root, cursor, note };
    });
    const read = seconds => cells.forEach(c => {
      const j = seconds === null ? -1 : Math.floor(seconds / c.r.pic.dt), inside = j >= 0 && j < seriesLength(c.r.pic);
      c.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
      if (inside) { c.cursor.setAttribute("x1", time(seconds)); c.cursor.setAttribute("x2", time(seconds)); }
      c.note.textContent = inside ? reading(c.r.pic, j) : summary(c.r);
    });
    for (const c of cells) {
      c.root.addEventListener("pointermove", e => {
        const box = c.root.getBoundingClientRect();
        read(time.invert((e.clientX - box.left) * c.root.viewBox.baseVal.width / box.width));
      });
      c.root.addEventListener("pointerleave", () => read(null));
    }
    into.append(grid);
  }
  const swatch = (colour, words) => html("span", {}, html("i", { style: `background:${colour}` }), words);

  function hits() {
    const mine = shown(p => p.hbm.length > 1);
    if (!mine.length) return;
    const s = section("Where prompts were found, over time", "Share of the prompt tokens arriving in each window that were found in HBM, and loaded from a lower tier, stacked. First seed; the figure is the mean over the seeds.");
    s.append(html("div", { class: "keys" }, swatch("var(--hbm)", "HBM"), swatch("var(--tier)", "lower tier"), html("span", {}, html("i", { class: "dashed" }), `bound, whole run: ${words.percent(scene.bound.cached)}`)));
    const top = Math.min(1, 1.05 * extent(mine.flatMap(r => r.pic.hbm.map((v, i) => v + (r.pic.tier[i] || 0))).concat(scene.bound.cached), [0, 1])[1]) || 1;
    multiples(s, mine, "Hit share over time", p => p.hbm.length, top, (root, r, x, y, i, [a, b]) => {
      const hbm = j => known(r.pic.hbm[j]) ? r.pic.hbm[j] : NaN, both = j => hbm(j) + (r.pic.tier[j] || 0);
      root.append(svg("path", { d: area(x, () => y(0), j => y(hbm(j))), style: "fill:var(--hbm)" }), svg("path", { d: area(x, j => y(hbm(j)), j => y(both(j))), style: "fill:var(--tier)" }));
      if (known(scene.bound.cached)) root.append(line(a, y(scene.bound.cached), b, y(scene.bound.cached), "bound"));
    }, r => words.percent(r.hbm + r.tier), (p, j) => known(p.hbm[j]) ? `${(100 * p.hbm[j]).toFixed(1)} + ${words.percent(p.tier[j])}` : "–");
  }

  function loads() {
    const mine = shown(p => p.mean.length > 1);
    if (!mine.length) return;
    const s = section("How evenly workers were loaded", "Busy share of the workers by window: the band runs from the least to the most busy, the line is their mean. A narrow band is an even load. First seed; CoV is the mean over the seeds.");
    const top = Math.max(1, extent(mine.flatMap(r => r.pic.max), [0, 1])[1]);
    multiples(s, mine, "Load over time", p => p.mean.length, top, (root, r, x, y) => {
      const of = (k, j) => known(r.pic[k][j]) ? y(r.pic[k][j]) : NaN;
      root.append(svg("path", { d: area(x, j => of("min", j), j => of("max", j)), style: `fill:${hue(r.policy)};opacity:.26` }),
        svg("path", { d: path(r.pic.mean.map((v, j) => known(v) ? [x(j), y(v)] : null)), class: "line", style: `stroke:${hue(r.policy)}` }));
    }, r => "CoV " + words.plain(r.cov.v), (p, j) => [p.min[j], p.mean[j], p.max[j]].map(v => known(v) ? (100 * v).toFixed(0) : "").join(" – ") + " %");
  }

  // What the chosen worker was expected to cost, term by term.
  function terms() {
    const mine = rows().filter(r => r.pic && r.pic.terms && r.pic.terms.length);
    if (!mine.length) return;
    const s = section("What a decision weighs", "Mean expected cost of the chosen worker by term, of the policies that price. First seed.");
    const names = [...new Set(mine.flatMap(r => r.pic.terms.map(t => t.n)))];
    const colours = ["#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#cfcfcf", "#c9a8e0", "#aaaa55"];
    const colour = n => colours[names.indexOf(n) % colours.length];
    s.append(html("div", { class: "keys" }, ...names.map(n => swatch(colour(n), n))));
    const sum = r => r.pic.terms.reduce((a, t) => a + (t.v || 0), 0), width = Math.min(inner(), 1100);
    const left = Math.min(190, 14 + Math.max(...mine.map(r => widthOf(r.label, 13)))), right = width - 70, rowH = 24, bottom = mine.length * rowH + 4;
    const x = scale("linear", 0, Math.max(...mine.map(sum)) || 1, left, right), root = canvas(width, bottom + 22, "Mean cost of the chosen worker by term");
    const time = v => words.seconds(v / 1e6);
    xAxis(root, x, Math.floor((right - left) / 90), 0, bottom, t => words.secondsTick(t / 1e6));
    mine.forEach((r, i) => {
      const y = i * rowH + 4;
      let from = 0;
      root.append(text(left - 12, y + 13, fit(r.label, left - 14), r.ours ? "strong" : "", "end"));
      for (const t of r.pic.terms) {
        const w = x(t.v || 0) - x(0), says = `${t.n} ${time(t.v || 0)}`;
        const bar = svg("rect", { x: round(x(from)), y, width: round(Math.max(0, w - .8)), height: rowH - 7, fill: colour(t.n) }, svg("title", {}, says));
        root.append(bar);
        const label = widthOf(says, 11) < w - 8 ? says : widthOf(t.n, 11) < w - 8 ? t.n : "";
        if (label) root.append(svg("text", { x: round(x(from) + 5), y: y + 12.5, style: "fill:#1b222b;font-size:11px", "pointer-events": "none" }, label));
        from += t.v || 0;
      }
      root.append(text(x(from) + 6, y + 13, time(from), "num" + (r.ours ? " strong" : "")));
    });
    s.append(root);
  }

  function goodput() {
    const mine = shown(p => p.speeds.length > 1);
    if (!mine.length) return;
    const s = section("Goodput against load", "Share of requests within both objectives when the same work comes faster; further right at the dashed 95 % is more capacity.");
    const width = Math.min(inner(), 1100), names = Math.min(190, 12 + Math.max(...mine.map(r => widthOf(r.label, 13)))), left = 44, right = width - names - 8, top = 10, bottom = 300;
    const [lo, hi] = extent(mine.flatMap(r => r.pic.speeds), [0, 1]);
    const x = scale("linear", lo, hi, left, right), y = scale("linear", 0, 1, bottom, top), root = canvas(width, bottom + 36, "Goodput against load by policy");
    for (const t of [0, .25, .5, .75, 1]) root.append(line(left, y(t), right, y(t), t ? "grid" : "axis"), text(left - 6, y(t) + 4, words.percentTick(t), "soft num", "end"));
    xAxis(root, x, Math.floor((right - left) / 80), top, bottom, t => short(t) + "×");
    root.append(text((left + right) / 2, bottom + 32, "speed of the arrivals", "soft", "middle"), line(left, y(.95), right, y(.95), "bound"));
    const labels = [];
    for (const r of mine.toSorted((a, b) => a.ours - b.ours)) {
      const points = r.pic.speeds.map((v, i) => known(v) && known(r.pic.goodput[i]) ? [x(v), y(r.pic.goodput[i])] : null), ends = points.filter(Boolean);
      if (!ends.length) continue;
      root.append(svg("path", { d: path(points), class: "line" + (r.ours ? " ours" : ""), ...stroke(r.policy) }));
      for (const p of ends) root.append(svg("circle", { cx: round(p[0]), cy: round(p[1]), r: r.ours ? 3.4 : 2.4, style: `fill:${hue(r.policy)}`, "data-p": r.p }));
      labels.push({ r, y: ends.at(-1)[1], end: ends.at(-1) });
    }
    spread(labels, 14, top + 4, bottom - 2);
    for (const l of labels) root.append(svg("g", { "data-p": l.r.p },
      svg("path", { d: path([[l.end[0] + 5, l.end[1]], [right + 12, l.y]]), style: `stroke:${hue(l.r.policy)};fill:none;opacity:.6` }),
      svg("text", { x: right + 15, y: round(l.y + 4), class: l.r.ours ? "strong" : "", style: `fill:${hue(l.r.policy)}` }, fit(l.r.label, names - 8))));
    s.append(root);
  }

  function draw() {
    const i = data.scenarios.indexOf(scene);
    for (const s of document.querySelectorAll("[data-scenario]")) s.hidden = Number(s.dataset.scenario) !== i;
    plots.replaceChildren(html("p", { class: "what" }, html("b", {}, scene.name), ": " + scene.what));
    for (const figure of [glance, forest, cdfs, hits, loads, terms, goodput]) figure();
  }

  function legend() {
    at("legend").replaceChildren(...policies.map((p, i) => {
      const mark = svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, "stroke-width": ours(p) ? 3.4 : 2.2, style: `stroke:${hue(p)}`, "stroke-dasharray": dash(p) }));
      const b = html("button", { type: "button", "aria-pressed": String(p.shown), class: ours(p) ? "ours" : "", title: p.name }, mark, html("span", {}, p.name));
      b.addEventListener("click", () => { p.shown = !p.shown; b.setAttribute("aria-pressed", String(p.shown)); draw(); });
      b.addEventListener("pointerenter", () => focus(i));
      b.addEventListener("pointerleave", () => focus(null));
      return b;
    }));
  }

  function focus(i) {
    plots.classList.toggle("focus", i !== null && policies[i].shown);
    for (const el of plots.querySelectorAll("[data-p]")) el.classList.toggle("on", el.getAttribute("data-p") === String(i));
  }

  at("scenario").addEventListener("change", e => { scene = data.scenarios[Number(e.target.value)]; draw(); });
  for (const b of document.querySelectorAll("[data-show]")) b.addEventListener("click", () => {
    policies.forEach((p, i) => { p.shown = b.dataset.show === "all" || (b.dataset.show === "few" ? first[i] : ours(p)); });
    legend();
    draw();
  });
  at("theme").addEventListener("click", () => {
    const root = document.documentElement, now = root.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    root.style.colorScheme = now === "dark" ? "light" : "dark";
  });
  addEventListener("beforeprint", () => { printing = true; draw(); });
  addEventListener("afterprint", () => { printing = false; draw(); });
  let drawn = 0;
  new ResizeObserver(() => {
    if (printing || plots.clientWidth === drawn) return;
    drawn = plots.clientWidth;
    requestAnimationFrame(draw);
  }).observe(plots.parentElement);
  at("bar").hidden = false;
  legend();
  draw();
})();
