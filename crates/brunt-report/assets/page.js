// Draws the charts of a page with uPlot and lets people read them: cursors that move together on
// one time axis, values under the pointer or by arrow keys, a table of the data beside each chart.
// What is on the page is decided where the page is made; nothing here computes a figure.
(() => {
"use strict";
const root = document.documentElement;
const charts = JSON.parse(document.getElementById("data").textContent).charts;
const make = (name, cls, text) => {
  const element = document.createElement(name);
  if (cls) element.className = cls;
  if (text !== undefined) element.textContent = text;
  return element;
};

// ---- Numbers for people, by the rules of format.rs.
const grouped = v => Math.round(v).toString().replace("-", "−").replace(/\B(?=(\d{3})+$)/g, ",");
const three = v => {
  const size = Math.abs(v);
  if (Number.isInteger(v) && size < 1e15) return grouped(v);
  if (size >= 99.95) return grouped(v);
  if (size >= 9.995) return v.toFixed(1);
  if (size >= 0.9995) return v.toFixed(2);
  if (size >= 0.00095) return v.toFixed(3);
  return v.toExponential(1);
};
const K = 1024;
const SCALES = {
  "micros": [[1e-3, " ns"], [1, " µs"], [1e3, " ms"], [1e6, " s"]],
  "bytes": [[1, " B"], [K, " KiB"], [K ** 2, " MiB"], [K ** 3, " GiB"], [K ** 4, " TiB"]],
  "bytes-per-second": [[1, " B/s"], [1e3, " kB/s"], [1e6, " MB/s"], [1e9, " GB/s"], [1e12, " TB/s"]],
  "per-second": [[1, "/s"], [1e3, " k/s"], [1e6, " M/s"], [1e9, " G/s"]],
};
// The unit in which a value, or a whole axis that ends at it, is written.
const scaleOf = (unit, value) => {
  const scales = SCALES[unit], step = scales[1][0] / scales[0][0];
  return scales.find(([scale]) => Math.abs(value) / scale < step * 0.9995) || scales[scales.length - 1];
};
const nines = v => {
  const decimals = Math.min(9, Math.max(0, Math.ceil(v - 1e-9) - 2)), floor = 10 ** decimals;
  return (Math.floor((1 - 10 ** -v) * 100 * floor + 1e-6) / floor).toFixed(decimals) + " %";
};
const clock = v => {
  if (v < 120) return three(v) + " s";
  const whole = Math.round(v), two = n => String(n).padStart(2, "0");
  const h = Math.floor(whole / 3600), m = Math.floor(whole / 60) % 60, s = whole % 60;
  return h ? `${h}:${two(m)}:${two(s)} h` : `${m}:${two(s)} min`;
};
const show = (unit, v) => {
  if (v == null || !Number.isFinite(v)) return "–";
  if (unit in SCALES) {
    const [scale, name] = scaleOf(unit, v);
    return three(v / scale) + name;
  }
  if (unit === "share") return three(v * 100) + " %";
  if (unit === "nines") return nines(v);
  if (unit === "seconds") return clock(v);
  return three(v);
};
const plain = v => {
  const text = Math.abs(v) >= 1e4 ? grouped(v) : String(+v.toPrecision(4));
  return text.replace("-", "−");
};
// Labels of ticks: one unit along an axis with even steps, a fitting one for each on others.
const tickLabels = (unit, ticks, even) => {
  const most = Math.max(...ticks.map(Math.abs), 0);
  if (unit in SCALES) {
    return ticks.map(v => {
      if (v === 0) return "0";
      const [scale, name] = scaleOf(unit, even ? most : v);
      return plain(v / scale) + name;
    });
  }
  if (unit === "share") return ticks.map(v => plain(+(v * 100).toPrecision(6)) + " %");
  if (unit === "nines") return ticks.map(nines);
  if (unit === "seconds") {
    if (most < 1) return ticks.map(v => v === 0 ? "0" : plain(v * 1e3) + " ms");
    if (most < 120) return ticks.map(v => plain(v) + " s");
    const two = n => String(Math.floor(n)).padStart(2, "0");
    return ticks.map(v => most < 3600 ? `${Math.floor(v / 60)}:${two(v % 60)}`
      : `${Math.floor(v / 3600)}:${two(v / 60 % 60)}:${two(v % 60)}`);
  }
  return ticks.map(plain);
};

// ---- Colours: the style sheet's, read again when they change.
let colours = {};
const readColours = () => {
  const style = getComputedStyle(root);
  colours = {};
  for (const name of ["ink", "soft", "line", "grid", "panel", "fault", "fault-ink", ..."c0 c1 c2 c3 c4 c5 c6 c7 l0 l1 l2 l3 l4 h0 h1 h2 h3 h4".split(" ")])
    colours[name] = style.getPropertyValue("--" + name).trim();
};
const channels = colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
const heatColour = share => {
  const place = Math.min(3.9999, Math.max(0, share * 4)), at = Math.floor(place), part = place - at;
  const a = channels(colours["h" + at]), b = channels(colours["h" + (at + 1)]);
  return `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * part)).join(",")})`;
};
const keyOf = role => "nominal" in role ? "c" + role.nominal % 8 : "run" in role ? "c" + role.run % 8
  : "reference" in role ? "soft" : "l" + Math.min(role.level, 4);
const DASHES = [[], [7, 3], [2, 2.5], [9, 3, 2, 3]];
// Beyond eight colours, and on paper without any, dashes tell lines apart.
const dashOf = (spec, role) => "level" in role ? (role.level === 4 ? [2, 2] : [])
  : "reference" in role ? [5, 4] : "run" in role ? DASHES[Math.floor(role.run / 8) % 4]
  : DASHES[(spec.kind === "curves" ? role.nominal : Math.floor(role.nominal / 8)) % 4];
const MARKS = [
  (p, x, y, r) => p.arc(x, y, r, 0, 2 * Math.PI),
  (p, x, y, r) => p.rect(x - r * .88, y - r * .88, r * 1.76, r * 1.76),
  (p, x, y, r) => { p.moveTo(x, y - r * 1.25); p.lineTo(x + r * 1.2, y + r * .85); p.lineTo(x - r * 1.2, y + r * .85); p.closePath(); },
  (p, x, y, r) => { p.moveTo(x, y - r * 1.3); p.lineTo(x + r * 1.3, y); p.lineTo(x, y + r * 1.3); p.lineTo(x - r * 1.3, y); p.closePath(); },
];
const markOf = role => MARKS[("nominal" in role ? role.nominal : 0) % 4];

// ---- Places of ticks.
const logTicks = (min, max, most) => {
  let best = null;
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max) + 1e-9; power++)
      for (const step of steps) {
        const v = step * 10 ** power;
        if (v >= min * .9999 && v <= max * 1.0001) ticks.push(+v.toPrecision(12));
      }
    if (ticks.length > most) {
      if (!best || best.length < 2) best = best || ticks.filter((_, i) => i % Math.ceil(ticks.length / most) === 0);
      break;
    }
    best = ticks;
  }
  return best && best.length >= 3 ? best : evenTicks(min, max, most);
};
const evenTicks = (min, max, most) => {
  const rough = (max - min) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(s => s * power).find(s => s >= rough * .999);
  const ticks = [];
  for (let v = Math.ceil(min / step - 1e-9) * step; v <= max + step * 1e-9; v += step) ticks.push(+v.toPrecision(12));
  return ticks;
};
// Even steps in the unit that the axis is labelled with: 1024s do not fall on tens.
const unitTicks = (unit, min, max, most) => {
  const scale = unit in SCALES ? scaleOf(unit, max)[0] : 1;
  return evenTicks(min / scale, max / scale, most).map(v => v * scale);
};
const clockTicks = (min, max, most) => {
  const rough = (max - min) / Math.max(1, most);
  if (max < 120) return evenTicks(min, max, most);
  const step = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400].find(s => s >= rough) || 86400;
  const ticks = [];
  for (let v = Math.ceil(min / step) * step; v <= max; v += step) ticks.push(v);
  return ticks;
};
// Of the ticks wanted, as many as do not run into each other.
const thinTicks = (u, ticks, axis, min, max, width, apart) => {
  const log = axis.scale === "log", f = v => log ? Math.log(v) : v;
  const at = v => (f(v) - f(min)) / (f(max) - f(min)) * width;
  const kept = [];
  for (const v of ticks) if (v >= min && v <= max && (!kept.length || at(v) - at(kept[kept.length - 1]) >= apart)) kept.push(v);
  return kept;
};

const extent = lists => {
  let min = Infinity, max = -Infinity;
  for (const list of lists) for (const v of list) if (v != null) { if (v < min) min = v; if (v > max) max = v; }
  return min <= max ? [min, max] : [0, 1];
};
const rangeOf = (axis, min, max) => {
  if (axis.scale === "log") {
    if (!(min > 0)) min = max > 0 ? max / 1000 : 1;
    const pad = Math.max(1.12, (max / min) ** .04);
    return [min / pad, Math.max(max, min) * pad];
  }
  if (axis.unit === "nines") return [0, max * 1.04 || 1];
  if (axis.scale === "from-zero") return [0, max > 0 ? max * 1.07 : 1];
  const pad = (max - min) * .06 || Math.abs(max) * .1 || 1;
  return [min >= 0 ? Math.max(0, min - pad) : min - pad, max + pad];
};

// ---- Charts.
const live = new Map(); // figure -> its plot
const groups = new Map(); // name of a shared axis -> its plots
let paper = false;

// On paper the column is 695 pixels wide, or half of it.
const widthOf = plot => paper ? (plot.closest(".grid > figure:not(:last-child:nth-child(odd))") ? 322 : 672) : Math.max(120, Math.floor(plot.clientWidth));

const build = figure => {
  if (live.has(figure)) return;
  const spec = charts[+figure.dataset.chart], plot = figure.querySelector(".plot");
  const heat = spec.heat, narrow = widthOf(plot) < 430;
  const xs = heat ? heat.columns.slice(0, -1) : spec.xs;
  const data = heat ? [xs, xs.map(() => null)] : [xs, ...spec.series.map(s => s.values)];
  const [x0, x1] = spec.stretch ? spec.stretch : heat ? [heat.columns[0], heat.columns[heat.columns.length - 1]] : extent([xs]);
  const xRange = spec.kind === "lines" ? rangeOf({ ...spec.x, scale: spec.x.scale === "log" ? "log" : "linear" }, x0, x1) : [x0, x1 > x0 ? x1 : x0 + 1];
  const yValues = u => {
    // Of the stretch that is shown, and of the lines that are shown.
    const [from, to] = u.view || [-Infinity, Infinity], lists = [];
    spec.series.forEach((s, i) => {
      if (u.series[i + 1].show === false) return;
      for (const list of [s.values, s.low || [], s.high || []]) lists.push(list.filter((_, j) => xs[j] >= from && xs[j] <= to));
    });
    if (spec.y.scale !== "log") return extent(lists);
    // No logarithm shows an interval down to zero: it is cut a little below the lowest mean.
    const floor = extent(lists.filter((_, i) => i % 3 === 0).map(list => list.filter(v => v > 0)))[0] / 3;
    return extent(lists.map(list => list.filter(v => v != null).map(v => Math.max(v, floor))));
  };
  const yRange = u => heat ? [heat.rows[0], heat.rows[heat.rows.length - 1]] : rangeOf(spec.y, ...yValues(u));

  const font = (narrow ? 11 : 12) + "px " + getComputedStyle(document.body).fontFamily;
  const common = { stroke: () => colours.soft, font, labelFont: font, labelGap: 0, ticks: { stroke: () => colours.line, width: 1, size: 4 }, gap: 4 };
  const xLabel = spec.x.unit === "seconds" ? spec.x.title + (xRange[1] < 120 ? "" : xRange[1] < 3600 ? " (min:s)" : " (h:min:s)") : spec.x.title;
  const opts = {
    width: widthOf(plot), height: spec.height, legend: { show: false }, padding: [10, narrow ? 12 : 18, 0, 0],
    cursor: {
      y: false, drag: { x: true, y: false, setScale: false }, focus: { prox: -1 },
      points: { size: 7, width: 1.5, stroke: (u, i) => seriesColour(spec, i - 1), fill: () => colours.panel },
      ...(spec.sync ? { sync: { key: spec.sync, setSeries: false, scales: ["x", null] } } : {}),
    },
    scales: {
      x: { time: false, distr: spec.x.scale === "log" ? 3 : 1, range: u => u.view || xRange },
      y: { distr: spec.y.scale === "log" ? 3 : 1, range: u => yRange(u) },
    },
    axes: [
      {
        // Low panels that share an axis leave its name to the tall ones.
        ...common, ...(spec.sync && spec.height < 150 ? {} : { label: xLabel, labelSize: 18 }), size: 26, grid: { show: spec.kind !== "heat", stroke: () => colours.grid, width: 1 },
        splits: (u, _, min, max) => {
          const width = u.bbox.width / devicePixelRatio || 500, most = Math.max(2, Math.floor(width / (narrow ? 62 : 84)));
          if (spec.x.ticks) return thinTicks(u, spec.x.ticks, spec.x, min, max, width, narrow ? 40 : 48);
          if (spec.x.unit === "seconds") return clockTicks(min, max, most);
          return spec.x.scale === "log" ? logTicks(min, max, most) : unitTicks(spec.x.unit, min, max, most);
        },
        filter: (u, splits) => splits, values: (u, splits) => tickLabels(spec.x.unit, splits, spec.x.scale !== "log" && !spec.x.ticks),
      },
      {
        ...common, size: spec.y.unit === "nines" ? 84 : narrow ? 58 : 70, grid: { stroke: () => colours.grid, width: 1, show: spec.kind !== "heat" },
        splits: (u, _, min, max) => {
          const most = Math.max(3, Math.floor(spec.height / 40));
          if (spec.y.unit === "nines") return (max < 5 ? [0, 0.30103, 1, 2, 3, 4] : [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).filter(v => v <= max);
          return spec.y.scale === "log" ? logTicks(min, max, most) : unitTicks(spec.y.unit, min, max, most);
        },
        filter: (u, splits) => splits, values: (u, splits) => tickLabels(spec.y.unit, splits, spec.y.scale !== "log"),
      },
    ],
    series: [{}, ...(heat ? [{ show: true, stroke: "transparent", points: { show: false } }] : spec.series.map((s, i) => ({
      label: s.name, stroke: () => seriesColour(spec, i), width: "level" in s.role && s.role.level === 4 ? 1 : "run" in s.role ? 1.2 : "reference" in s.role ? 1.3 : 1.75,
      dash: dashOf(spec, s.role), points: { show: spec.kind === "curves" && xs.length < 3 }, spanGaps: spec.kind === "lines",
    })))],
    bands: (spec.fills || []).map(([a, b]) => ({ series: [Math.max(a, b) + 1, Math.min(a, b) + 1], fill: () => seriesColour(spec, Math.min(a, b)) + "38" })),
    hooks: {
      drawClear: [u => drawBelow(u, spec)],
      draw: [u => drawAbove(u, spec)],
      setCursor: [u => tip(u, spec, figure)],
      setSelect: [u => {
        if (u.select.width > 4) look(u, spec, [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }],
    },
  };
  plot.replaceChildren();
  const u = new uPlot(opts, data, plot);
  live.set(figure, u);
  if (spec.sync) groups.set(spec.sync, (groups.get(spec.sync) || new Set()).add(u));
  u.root.setAttribute("aria-hidden", "true");
  u.tip = make("div", "tip"); u.tip.hidden = true; u.over.append(u.tip);
  u.over.addEventListener("dblclick", () => look(u, spec, null), true);
  u.over.addEventListener("mouseenter", () => { u.hovered = true; });
  u.over.addEventListener("mouseleave", () => { u.hovered = false; });
  const back = make("button", "zoom", "Whole"); back.type = "button"; back.hidden = true; back.title = "Show the whole axis again";
  back.addEventListener("click", () => look(u, spec, null));
  u.back = back; plot.append(back);
  legend(figure, spec, u);
};

const seriesColour = (spec, i) => spec.series[i] ? colours[keyOf(spec.series[i].role)] : colours.soft;

// A stretch chosen on one chart is shown by all of its axis; null shows the whole.
const look = (u, spec, view) => {
  for (const one of spec.sync ? groups.get(spec.sync) : [u]) {
    one.view = view;
    one.back.hidden = !view;
    one.redraw(true, true);
    one.setScale("x", view ? { min: view[0], max: view[1] } : { min: null, max: null });
  }
};

const drawBelow = (u, spec) => {
  const { ctx } = u, { left, top, width, height } = u.bbox, ratio = devicePixelRatio;
  ctx.save();
  ctx.beginPath(); ctx.rect(left, top, width, height); ctx.clip();
  if (spec.heat) {
    const { columns, rows, cells } = spec.heat;
    // By the time a column stands for: columns may grow with the run.
    const wide = columns[columns.length - 1] - columns[columns.length - 2];
    const dense = i => cells[i + 2] * wide / (columns[cells[i] + 1] - columns[cells[i]]);
    let most = 1;
    for (let i = 0; i < cells.length; i += 3) most = Math.max(most, dense(i));
    const x = columns.map(v => u.valToPos(v, "x", true)), y = rows.map(v => u.valToPos(v, "y", true));
    for (let i = 0; i < cells.length; i += 3) {
      const c = cells[i], r = cells[i + 1];
      ctx.fillStyle = heatColour(.08 + .92 * Math.log1p(dense(i)) / Math.log1p(most));
      const l = Math.floor(x[c]), t = Math.floor(y[r + 1]);
      ctx.fillRect(l, t, Math.max(1, Math.ceil(x[c + 1]) - l), Math.max(1, Math.ceil(y[r]) - t));
    }
  }
  for (const span of spec.spans || []) {
    const a = u.valToPos(span.from, "x", true), b = Math.max(u.valToPos(span.to, "x", true), a + 2 * ratio);
    if (!spec.heat) { ctx.fillStyle = colours.fault; ctx.fillRect(a, top, b - a, height); }
    ctx.strokeStyle = colours["fault-ink"]; ctx.lineWidth = ratio; ctx.setLineDash([4 * ratio, 3 * ratio]);
    ctx.beginPath(); ctx.moveTo(a, top); ctx.lineTo(a, top + height); ctx.moveTo(b, top); ctx.lineTo(b, top + height); ctx.stroke();
    ctx.setLineDash([]);
  }
  (spec.marks || []).forEach((mark, i) => {
    const x = u.valToPos(mark.at, "x", true), right = x > left + width * .7;
    ctx.strokeStyle = ctx.fillStyle = colours[keyOf(mark.role)]; ctx.lineWidth = 1.3 * ratio; ctx.setLineDash([2 * ratio, 3 * ratio]);
    ctx.beginPath(); ctx.moveTo(x, top); ctx.lineTo(x, top + height); ctx.stroke(); ctx.setLineDash([]);
    ctx.font = 11.5 * ratio + "px " + getComputedStyle(document.body).fontFamily; ctx.textAlign = right ? "right" : "left"; ctx.textBaseline = "top";
    ctx.fillText(mark.label, x + (right ? -5 : 5) * ratio, top + (3 + 14 * i) * ratio);
  });
  ctx.restore();
};

const drawAbove = (u, spec) => {
  const { ctx } = u, ratio = devicePixelRatio, { left, top, width, height } = u.bbox;
  ctx.save();
  ctx.beginPath(); ctx.rect(left - 8 * ratio, top - 8 * ratio, width + 16 * ratio, height + 16 * ratio); ctx.clip();
  if (spec.kind === "lines") {
    spec.series.forEach((s, i) => {
      if (!u.series[i + 1].show) return;
      const colour = seriesColour(spec, i), cap = 4 * ratio, r = 3.6 * ratio;
      const whiskers = new Path2D(), marks = new Path2D();
      spec.xs.forEach((v, j) => {
        if (s.values[j] == null) return;
        const x = u.valToPos(v, "x", true), y = u.valToPos(s.values[j], "y", true);
        if (x < left - ratio || x > left + width + ratio) return;
        if (s.low && s.low[j] != null && s.high[j] != null) {
          const cut = s.low[j] < u.scales.y.min;
          const a = u.valToPos(cut ? u.scales.y.min : s.low[j], "y", true), b = u.valToPos(s.high[j], "y", true);
          whiskers.moveTo(x, a); whiskers.lineTo(x, b);
          if (!cut) { whiskers.moveTo(x - cap, a); whiskers.lineTo(x + cap, a); }
          whiskers.moveTo(x - cap, b); whiskers.lineTo(x + cap, b);
        }
        const mark = new Path2D(); markOf(s.role)(mark, x, y, r); marks.addPath(mark);
      });
      ctx.setLineDash([]); ctx.strokeStyle = colour; ctx.lineWidth = 1.4 * ratio; ctx.stroke(whiskers);
      ctx.fillStyle = colour; ctx.fill(marks);
      ctx.strokeStyle = colours.panel; ctx.lineWidth = ratio; ctx.stroke(marks);
    });
  }
  ctx.restore();
};

// ---- The legend: each name is a switch.
const sample = (spec, s, i) => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("width", "22"); svg.setAttribute("height", "12"); svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(svg.namespaceURI, "line");
  for (const [name, value] of Object.entries({ x1: 0, x2: 22, y1: 6, y2: 6, "stroke-width": 2, "stroke-dasharray": dashOf(spec, s.role).join(" ") || "none" })) line.setAttribute(name, value);
  line.style.stroke = `var(--${keyOf(s.role)})`;
  svg.append(line);
  if (spec.kind === "lines") {
    const shape = ("nominal" in s.role ? s.role.nominal : 0) % 4, mark = document.createElementNS(svg.namespaceURI, "path");
    mark.setAttribute("d", ["M7.4 6a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0", "M7.8 2.8h6.4v6.4h-6.4z", "M11 1.6l4.2 7.4h-8.4z", "M11 1.4l4.6 4.6l-4.6 4.6l-4.6-4.6z"][shape]);
    mark.style.fill = `var(--${keyOf(s.role)})`;
    svg.append(mark);
  }
  return svg;
};
const legend = (figure, spec, u) => {
  const box = figure.querySelector(".legend");
  box.replaceChildren();
  box.append(make("span", "key unit", ""));
  box.firstChild.textContent = spec.y.title; box.firstChild.style.color = "var(--soft)";
  if (spec.heat) {
    const key = make("span", "key", "few"); key.append(make("i", "ramp"), "many requests a second (colour by the logarithm)");
    box.append(key);
  } else if (spec.series.length > 1) {
    spec.series.forEach((s, i) => {
      const key = make("button", "key"); key.type = "button"; key.setAttribute("aria-pressed", "true"); key.title = "Show or hide";
      key.append(sample(spec, s, i), make("span", "", s.name));
      key.addEventListener("click", () => {
        const on = key.getAttribute("aria-pressed") !== "true";
        key.setAttribute("aria-pressed", on); u.setSeries(i + 1, { show: on });
      });
      box.append(key);
    });
  }
  if (spec.spans && spec.spans.length) {
    const names = [...new Set(spec.spans.map(span => span.label))], key = make("span", "key");
    key.append(make("i", "fault"), names.length > 3 ? `faults (${names.length})` : names.join("; "));
    box.append(key);
  }
};

// ---- Values under the cursor.
const valueText = (spec, s, j) => {
  const low = s.low && s.low[j], high = s.high && s.high[j];
  const text = show(spec.y.unit, s.values[j]);
  return low != null && high != null && s.values[j] != null ? `${text} (${show(spec.y.unit, low)} to ${show(spec.y.unit, high)})` : text;
};
const linesAt = (u, spec, j, y) => {
  const at = show(spec.x.unit, u.data[0][j]), lines = [];
  if (spec.heat) {
    const { rows, cells, columns } = spec.heat;
    if (y != null) {
      let row = rows.findIndex((v, r) => y >= v && y < rows[r + 1]);
      let count = 0;
      for (let i = 0; i < cells.length; i += 3) if (cells[i] === j && cells[i + 1] === row) count = cells[i + 2];
      if (row >= 0) lines.push([null, `${show(spec.y.unit, rows[row])} to ${show(spec.y.unit, rows[row + 1])}`, grouped(count)]);
    }
    let all = 0, high = 0;
    for (let i = 0; i < cells.length; i += 3) if (cells[i] === j) { all += cells[i + 2]; high = Math.max(high, rows[cells[i + 1] + 1]); }
    lines.push([null, "all requests", grouped(all)], [null, "slowest under", show(spec.y.unit, high)]);
    return [at + " to " + show(spec.x.unit, columns[j + 1]), lines];
  }
  spec.series.forEach((s, i) => {
    if (u.series[i + 1].show && s.values[j] != null) lines.push([s, s.name, valueText(spec, s, j)]);
  });
  for (const span of spec.spans || []) if (u.data[0][j] >= span.from && u.data[0][j] <= span.to) lines.push([null, span.label, ""]);
  return [`${spec.x.label}: ${at}`, lines];
};
const tip = (u, spec, figure) => {
  if (!u.tip) return;
  let { idx, left, top } = u.cursor;
  if (spec.heat && left >= 0) {
    const v = u.posToVal(left, "x"), { columns } = spec.heat;
    idx = columns.findIndex((c, i) => v >= c && v < columns[i + 1]);
    if (idx < 0) idx = null;
  }
  if (idx == null || left < 0) { u.tip.hidden = true; return; }
  const [head, lines] = linesAt(u, spec, idx, spec.heat && u.hovered && top >= 0 ? u.posToVal(top, "y") : null);
  const table = make("table"), row = table.insertRow(), title = make("th", "", head);
  title.colSpan = 3; row.append(title);
  for (const [s, name, value] of lines) {
    const tr = table.insertRow(), k = tr.insertCell(); k.className = "k";
    if (s) k.append(sample(spec, s));
    const n = tr.insertCell(); n.className = "n"; n.textContent = name;
    tr.insertCell().textContent = value;
  }
  u.tip.replaceChildren(table);
  u.tip.hidden = false;
  const wide = u.over.clientWidth, own = u.tip.offsetWidth;
  const place = left > wide / 2 ? left - own - 14 : left + 14;
  u.tip.style.left = Math.max(-50, Math.min(wide - own, place)) + "px";
  if (u.spoken) { figure.querySelector("[aria-live]").textContent = head + ". " + lines.map(([, n, v]) => n + " " + v).join("; "); u.spoken = false; }
};
const keys = (figure, event) => {
  const u = live.get(figure), step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (!u) return;
  if (event.key === "Escape") { u.setCursor({ left: -10, top: -10 }, true, true); return; }
  if (step === undefined) return;
  event.preventDefault();
  const last = u.data[0].length - 1;
  u.at = Math.max(0, Math.min(last, step === -Infinity ? 0 : step === Infinity ? last : (u.at === undefined ? (step > 0 ? -1 : last + 1) : u.at) + step));
  u.spoken = true;
  const heat = charts[+figure.dataset.chart].heat;
  const v = heat ? (heat.columns[u.at] + heat.columns[u.at + 1]) / 2 : u.data[0][u.at];
  u.setCursor({ left: u.valToPos(v, "x"), top: u.over.clientHeight / 2 }, true, true);
};

// ---- The same as a table, made when somebody asks for it.
const ROWS_MAX = 2000;
const dataTable = (details, spec) => {
  const box = make("div", "scroll"), table = make("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  const name = text => { const th = make("th", "num", text); th.scope = "col"; head.append(th); };
  name(spec.x.label);
  const row = (at, values) => {
    const tr = body.insertRow(), th = make("th", "num", at); th.scope = "row"; th.style.minWidth = "0"; tr.append(th);
    for (const value of values) { const td = tr.insertCell(); td.className = "num"; td.textContent = value; }
  };
  if (spec.heat) {
    const { columns, rows, cells } = spec.heat;
    name("requests"); name("lowest"); name("most frequent"); name("highest");
    for (let c = 0; c < columns.length - 1 && c < ROWS_MAX; c++) {
      let all = 0, best = -1, low = Infinity, high = -1, most = 0;
      for (let i = 0; i < cells.length; i += 3) if (cells[i] === c) {
        all += cells[i + 2]; low = Math.min(low, cells[i + 1]); high = Math.max(high, cells[i + 1]);
        if (cells[i + 2] > most) { most = cells[i + 2]; best = cells[i + 1]; }
      }
      const of = r => r < 0 || r === Infinity ? "–" : show(spec.y.unit, rows[r]) + " to " + show(spec.y.unit, rows[r + 1]);
      row(show(spec.x.unit, columns[c]), [grouped(all), of(low), of(best), of(high)]);
    }
  } else {
    for (const s of spec.series) name(s.name);
    spec.xs.slice(0, ROWS_MAX).forEach((v, j) => row(show(spec.x.unit, v), spec.series.map(s => valueText(spec, s, j))));
  }
  box.tabIndex = 0; box.append(table); details.append(box);
};

// ---- Files of a chart: its picture, and its data with full numbers in the units on record.
const save = (blob, name) => {
  const a = make("a"); a.href = URL.createObjectURL(blob); a.download = name;
  document.body.append(a); a.click(); a.remove();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
};
const fileName = (spec, ending) => (spec.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart") + "." + ending;
const quoted = text => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
const csvOf = spec => {
  const rows = [], value = v => v == null ? "" : String(v);
  const name = axis => `${axis.label} (${axis.unit})`;
  if (spec.heat) {
    const { columns, rows: edges, cells } = spec.heat;
    rows.push([name(spec.x) + " from", "to", name(spec.y) + " from", "to", "requests"]);
    for (let i = 0; i < cells.length; i += 3) rows.push([columns[cells[i]], columns[cells[i] + 1], edges[cells[i + 1]], edges[cells[i + 1] + 1], cells[i + 2]].map(value));
  } else {
    rows.push([name(spec.x), ...spec.series.flatMap(s => s.low ? [s.name, s.name + " low", s.name + " high"] : [s.name])]);
    spec.xs.forEach((x, j) => rows.push([x, ...spec.series.flatMap(s => s.low ? [s.values[j], s.low[j], s.high[j]] : [s.values[j]])].map(value)));
  }
  return rows.map(row => row.map(quoted).join(",") + "\n").join("");
};
// Title, legend and plot on the page's background.
const pictureOf = (figure, spec) => {
  const u = live.get(figure), from = u.ctx.canvas, ratio = from.width / u.width, pad = 10 * ratio, line = 18 * ratio;
  const canvas = make("canvas"), shown = spec.series.map((s, i) => [s, i]).filter(([, i]) => !spec.heat && u.series[i + 1].show);
  const names = spec.heat || shown.length < 2 ? [] : shown, ctx = canvas.getContext("2d");
  const font = getComputedStyle(document.body).fontFamily, small = `${12 * ratio}px ${font}`;
  ctx.font = small;
  const places = []; let x = pad, y = pad + 2 * line;
  for (const [s] of names) {
    const wide = ctx.measureText(s.name).width + 46 * ratio;
    if (x > pad && x + wide > from.width + pad) { x = pad; y += line; }
    places.push([x, y]); x += wide;
  }
  const top = names.length ? y + line * .6 : pad + 1.4 * line;
  canvas.width = from.width + 2 * pad; canvas.height = top + from.height + pad;
  ctx.fillStyle = colours.panel; ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.fillStyle = colours.ink; ctx.font = `600 ${14 * ratio}px ${font}`; ctx.textBaseline = "middle"; ctx.fillText(spec.title, pad, pad + line / 2);
  ctx.font = small;
  names.forEach(([s, i], n) => {
    const [left, middle] = places[n];
    ctx.strokeStyle = seriesColour(spec, i); ctx.lineWidth = 2 * ratio; ctx.setLineDash(dashOf(spec, s.role).map(v => v * ratio));
    ctx.beginPath(); ctx.moveTo(left, middle); ctx.lineTo(left + 22 * ratio, middle); ctx.stroke();
    ctx.fillText(s.name, left + 28 * ratio, middle);
  });
  ctx.drawImage(from, pad, top);
  return canvas;
};
const exports = (figure, details) => {
  const spec = charts[+figure.dataset.chart], row = make("p", "files");
  const button = (text, act) => { const b = make("button", "", text); b.type = "button"; b.addEventListener("click", act); row.append(b); };
  button("Save PNG", () => pictureOf(figure, spec).toBlob(blob => save(blob, fileName(spec, "png")), "image/png"));
  button("Save CSV", () => save(new Blob([csvOf(spec)], { type: "text/csv" }), fileName(spec, "csv")));
  details.append(row);
};

// ---- The page.
const visible = figure => !figure.closest("[hidden]");
const buildAll = () => { for (const figure of document.querySelectorAll("figure.chart")) if (visible(figure)) build(figure); };
const rebuild = () => {
  for (const [, u] of live) u.destroy();
  live.clear(); groups.clear();
  buildAll();
};
const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
const paint = () => {
  root.toggleAttribute("data-dark", !paper && (theme === "dark" || theme === "auto" && dark.matches));
  readColours();
  for (const [, u] of live) u.redraw(false);
};
document.getElementById("theme").addEventListener("click", () => {
  theme = { auto: dark.matches ? "light" : "dark", light: dark.matches ? "auto" : "dark", dark: dark.matches ? "light" : "auto" }[theme];
  document.getElementById("theme-name").textContent = theme[0].toUpperCase() + theme.slice(1);
  paint();
});
dark.addEventListener("change", paint);

for (const figure of document.querySelectorAll("figure.chart")) {
  figure.querySelector(".plot").addEventListener("keydown", event => keys(figure, event));
  const details = figure.querySelector("details.data");
  exports(figure, details);
  details.addEventListener("toggle", () => { if (details.open && !details.querySelector("table")) dataTable(details, charts[+figure.dataset.chart]); });
}
for (const choice of document.querySelectorAll(".choice")) {
  const select = choice.querySelector(":scope > .pick select");
  if (!select) continue;
  const options = choice.querySelectorAll(":scope > .option");
  const change = () => { options.forEach((option, i) => { option.hidden = i !== select.selectedIndex; }); buildAll(); };
  select.addEventListener("change", change);
  if (select.selectedIndex > 0) change();
}
const resized = new ResizeObserver(entries => {
  if (paper) return;
  for (const { target } of entries) {
    const u = live.get(target.closest("figure")), width = widthOf(target);
    if (u && visible(target) && Math.abs(u.width - width) > 1) u.setSize({ width, height: u.height });
  }
});
// Paper: light, of one width, and finer than a screen.
const fine = ratio => { bruntRatio.paper = ratio; if (bruntRatio.query) bruntRatio.query.dispatchEvent(new Event("change")); };
addEventListener("beforeprint", () => { paper = true; fine(3); paint(); rebuild(); });
addEventListener("afterprint", () => { paper = false; fine(0); paint(); rebuild(); });

paint();
buildAll();
for (const plot of document.querySelectorAll(".plot")) resized.observe(plot);
root.dataset.ready = live.size;
})();
