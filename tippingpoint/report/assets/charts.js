// Drawing functions for the charts of a report, from the document in the page. Only pixels and labels are computed here.
// html.py joins the page's scripts into one strict function, so that each script sees those before it.
const doc = JSON.parse(document.getElementById("document").textContent);
const root = document.documentElement;
root.classList.add("js");
const drawn = [];
const PRINT_WIDTH = 680;
const SOLID = [], DASHED = [7, 4], DOTTED = [1, 3];
const PERCENTILES = [["p99", SOLID], ["p50", DASHED]];  // thresholds are mostly about the 99th
const STRIP = 17;  // pixels below a chart over time, for its events

// Reading a colour makes the browser lay out the page, so each colour is read once per drawing.
const colours = new Map();
function css(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue(name).trim());
  return colours.get(name);
}
const known = { claim: 1, extend: 2, connect: 3,
  "add-machine": 4, deploy: 8, "add-unit": 1, relate: 2, status: 6, "full-status": 7,
  create: 1, start: 2, reachable: 3, probe: 4, launch: 5, delete: 1, evict: 6, poll: 6,
  "cluster-list": 1, "list-fast": 2, list: 3, "operation-list": 4, exec: 5, "network-leases": 6, "network-list": 7,
  enlist: 1, commission: 2, release: 4, remove: 1, "power-off": 6, "power-on": 7,
  "machine-list": 3, machine: 1, "event-list": 4, "tag-list": 2, "fabric-list": 6, "tag-machines": 5, "untag-machines": 5,
  create_server: 1, await_active: 2, boot_server: 5, delete_server: 4, total: 3,
  "server-list": 3, "flavor-list": 4, "image-list": 5, "service-list": 1, "agent-list": 2,
  "remove-machine": 4, "remove-application": 5, "remove-unit": 1, "remove-relation": 2 };
const operationColour = name => css("--op-" + (known[name] || 3 + (doc.operations.filter(other => !known[other]).indexOf(name) % 4)));

// ---- figures -------------------------------------------------------------------------------
const digits = (value, most) => value.toLocaleString("en", { maximumSignificantDigits: most });
function latency(us) {
  if (us == null) return "–";
  if (us < 999.5) return digits(us, 3) + " µs";
  return us < 999500 ? digits(us / 1e3, 3) + " ms" : digits(us / 1e6, us < 1e9 ? 3 : 6) + " s";
}
const count = value => value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 2 : 0 });
const perSecond = value => value == null ? "–" : digits(value, 3) + "/s";
function clock(seconds) {
  if (seconds == null) return "–";
  if (seconds < 0) return "−" + clock(-seconds);
  const whole = Math.floor(seconds), minutes = Math.floor(whole / 60), rest = String(whole % 60).padStart(2, "0");
  if (minutes < 60) return minutes + ":" + rest;
  return Math.floor(minutes / 60) + ":" + String(minutes % 60).padStart(2, "0") + ":" + rest;
}

// A resource figure in its unit, as figures.quantity writes it: 412 MB, 3.2 Mbit/s. Every prefix is decimal.
const PREFIXED = { bytes: ["B", ""], "bytes/s": ["B", "/s"], "bits/s": ["bit", "/s"] };
function power(value) {
  let found = 0;
  while (Math.abs(value) >= 999.5 && found < 5) { value /= 1000; found++; }
  return found;
}
const prefixed = (unit, found) => ["", "k", "M", "G", "T", "P"][found] + PREFIXED[unit].join("");
const quantity = unit => value => {
  if (value == null) return "–";
  if (PREFIXED[unit]) return digits(value / 1000 ** power(value), 3) + " " + prefixed(unit, power(value));
  if (unit === "seconds") return latency(value * 1e6);
  if (unit === "ratio") return digits(value * 100, 3) + " %";
  if (unit === "count") return digits(value, 4);
  return digits(value, 3) + (unit === "count/s" ? "/s" : " " + unit);
};

// ---- scales --------------------------------------------------------------------------------
function steps(min, max) {
  const decades = Math.log10(max / min);
  return decades > 3.3 ? [1] : decades > 1.7 ? [1, 3] : [1, 2, 5];
}
function logTicks(min, max) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.ceil(Math.log10(max)); power++)
    for (const step of steps(min, max)) {
      const tick = Number((step * 10 ** power).toPrecision(3));
      if (tick >= min * 0.999 && tick <= max * 1.001) ticks.push(tick);
    }
  return ticks;
}
function logRange(min, max, least = 1) {
  if (min == null || !(max > 0)) return [1000, 100000];
  const low = Math.max(min, least), top = Math.max(max, low) * 1.15, bottom = low / 1.15;
  const down = 10 ** Math.floor(Math.log10(bottom)), up = 10 ** Math.floor(Math.log10(top));
  return [[5, 2, 1].map(n => n * down).find(n => n <= bottom),
          [1, 2, 5, 10].map(n => n * up).find(n => n >= top)];
}
const latencyScale = { distr: 3, log: 10, range: (u, min, max) => logRange(min, max) };
const rateScale = { distr: 3, log: 10, range: (u, min, max) => max > 0 ? logRange(min, max, 0.001) : [1, 10] };
const fromZero = { range: (u, min, max) => [0, max > 0 ? max * 1.12 : 1] };

function axis(options) {
  return Object.assign({
    stroke: css("--soft"), font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, labelSize: 18, labelGap: 2, gap: 6,
  }, options);
}
const stageSize = unit => unit + " (stage size)";
const narrow = box => box.clientWidth < 520;
const latencyAxis = () => axis({
  size: 56, label: "response time", splits: (u, i, min, max) => logTicks(min, max), filter: (u, ticks) => ticks,
  values: (u, ticks) => ticks.map(latency),
});
const rateAxis = () => axis({
  size: 56, label: "per second", splits: (u, i, min, max) => logTicks(min, max), filter: (u, ticks) => ticks,
  values: (u, ticks) => ticks.map(count),
});
const plainAxis = (label, format) => axis({ size: 56, label, values: (u, ticks) => ticks.map(format) });
// The axis of a figure with a known largest value: one prefix for all ticks, shown once.
function quantityAxis(unit, most) {
  const seconds = unit === "seconds" && most < 1, prefix = PREFIXED[unit] ? power(most) : 0;
  const label = PREFIXED[unit] ? prefixed(unit, prefix)
    : unit === "seconds" ? (seconds ? "milliseconds" : "seconds")
    : { ratio: "percent", count: "count", "count/s": "per second" }[unit] ?? unit;
  const scale = unit === "ratio" ? 100 : seconds ? 1000 : 1000 ** -prefix;
  return plainAxis(label, value => digits(value * scale, 4));
}
const timeAxis = label => axis({
  size: label ? 30 : 26, label, space: 60,
  incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400],
  values: (u, ticks) => ticks.map(clock),
});

// The ticks are the sizes that were run, without those too close to a neighbour.
function loadScale(sizes) {
  const low = sizes[0], high = sizes[sizes.length - 1], log = low > 0 && high / low > 10;
  const pad = log ? 10 ** (Math.log10(high / low) * 0.04) : Math.max((high - low) * 0.04, high * 0.02);
  return { time: false, distr: log ? 3 : 1, log: 10,
    range: () => log ? [low / pad, high * pad] : [Math.max(0, low - pad), high + pad] };
}
function loadAxis(sizes, label) {
  function ticks(u) {
    const kept = [];
    let before = Infinity;
    for (const size of sizes.slice().reverse()) {
      const place = u.valToPos(size, "x"), room = 22 + 6.5 * count(size).length;
      if (before - place >= room) { kept.unshift(size); before = place; }
    }
    return kept;
  }
  return axis({ size: 30, label, splits: ticks, filter: (u, t) => t,
    values: (u, t) => t.map(count) });
}

// ---- marks behind and on top of the lines ---------------------------------------------------
// bands: {from, to, fill or hatch, label}; lines: {x, label, stroke, dash, upright}; levels: {y, label, stroke}
// Colour is where the target tips, or while a load is raised. Hatched is what was not measured.
function marks(bands, lines, levels) {
  const shade = u => {
    const { left, top, width, height } = u.bbox, ctx = u.ctx;
    ctx.save();
    for (const band of bands) {
      const from = Math.max(left, u.valToPos(band.from, "x", true));
      const to = Math.min(left + width, u.valToPos(band.to, "x", true));
      if (to <= from) continue;
      ctx.fillStyle = band.hatch ? hatch(ctx, band.hatch, 0.3) : band.fill;
      ctx.fillRect(from, top, to - from, height);
    }
    ctx.restore();
  };
  const label = u => {
    const { left, top, width, height } = u.bbox, ctx = u.ctx, px = uPlot.pxRatio;
    const card = css("--card"), right = left + width;
    ctx.save();
    ctx.font = 11 * px + "px system-ui, sans-serif";
    ctx.textBaseline = "top";
    for (const band of bands) {
      if (!band.label) continue;
      const from = Math.max(left, u.valToPos(band.from, "x", true)), to = Math.min(right, u.valToPos(band.to, "x", true));
      if (ctx.measureText(band.label).width + 8 * px > to - from) continue;
      ctx.fillStyle = css("--soft"); ctx.textAlign = "left";
      ctx.fillText(band.label, from + 4 * px, top + 3 * px);
    }
    let row = bands.some(band => band.label) ? 1 : 0;
    const below = [], above = [];  // where labels along lines stand already
    const shown = lines.map(line => [line, u.valToPos(line.x, "x", true)]).filter(([, x]) => x >= left - 1 && x <= right + 1);
    for (const [line, x] of shown) {
      ctx.strokeStyle = line.stroke; ctx.lineWidth = 1.5 * px;
      ctx.setLineDash((line.dash || []).map(n => n * px));
      ctx.beginPath(); ctx.moveTo(x, top); ctx.lineTo(x, top + height); ctx.stroke();
    }
    ctx.setLineDash([]);
    let taken = [];
    for (const level of levels) {
      const y = u.valToPos(level.y, "y", true);
      if (y < top || y > top + height) continue;
      ctx.strokeStyle = level.stroke; ctx.lineWidth = px; ctx.setLineDash([2 * px, 3 * px]);
      ctx.beginPath(); ctx.moveTo(left, y); ctx.lineTo(right, y); ctx.stroke();
      ctx.setLineDash([]);
      const above = y - 14 * px > top && !taken.some(other => Math.abs(other - y) < 13 * px), down = above ? y - 13 * px : y + 3 * px;
      taken.push(y);
      ctx.fillStyle = level.stroke; ctx.strokeStyle = card; ctx.lineWidth = 3 * px; ctx.lineJoin = "round"; ctx.textAlign = "left";
      ctx.strokeText(level.label, left + 5 * px, down); ctx.fillText(level.label, left + 5 * px, down);
    }
    for (const [line, x] of shown) {
      if (!line.label) continue;
      ctx.fillStyle = line.stroke; ctx.strokeStyle = card; ctx.lineWidth = 3 * px; ctx.lineJoin = "round";
      if (line.upright) {  // written along the line, from its foot or else its head: neighbours do not cover each other
        const wide = ctx.measureText(line.label).width, near = taken => taken.filter(other => Math.abs(other.x - x) < 13 * px);
        const facing = Math.max(0, ...near(below).map(other => other.wide));
        const place = !facing ? below : !near(above).length && facing + wide < height - 26 * px ? above : null;
        if (!place) continue;
        place.push({ x, wide });
        ctx.save();
        ctx.translate(x + 3 * px, place === below ? top + height - 5 * px : top + 16 * px); ctx.rotate(-Math.PI / 2);
        ctx.textAlign = place === below ? "left" : "right";
        ctx.strokeText(line.label, 0, 0); ctx.fillText(line.label, 0, 0);
        ctx.restore();
      } else {
        const room = ctx.measureText(line.label).width + 8 * px, flip = x + room > right;
        ctx.textAlign = flip ? "right" : "left";
        const at = x + (flip ? -5 : 5) * px, down = top + (4 + 15 * row++) * px;
        ctx.strokeText(line.label, at, down); ctx.fillText(line.label, at, down);
      }
    }
    ctx.restore();
  };
  return { hooks: { drawClear: [shade], draw: [label] } };
}

// Events in a strip between the plot and its axis: a mark each, with its name where that does not cover the next one.
function strip(events) {
  const draw = u => {
    const { left, top, width, height } = u.bbox, ctx = u.ctx, px = uPlot.pxRatio, middle = top + height + (3 + STRIP / 2) * px;
    const shown = events.map(event => ({ ...event, at: u.valToPos(event.x, "x", true) })).filter(event => event.at >= left - 1 && event.at <= left + width + 1);
    ctx.save();
    ctx.font = 11 * px + "px system-ui, sans-serif"; ctx.textBaseline = "middle"; ctx.textAlign = "left";
    shown.forEach((event, index) => {
      const next = shown[index + 1]?.at ?? left + width + 24 * px, half = 4 * px;
      ctx.fillStyle = event.stroke;
      ctx.beginPath(); ctx.moveTo(event.at, middle - half); ctx.lineTo(event.at + half, middle + half); ctx.lineTo(event.at - half, middle + half); ctx.fill();
      if (event.at + 10 * px + ctx.measureText(event.label).width < next - 3 * px) ctx.fillText(event.label, event.at + 7 * px, middle);
    });
    ctx.restore();
  };
  return { hooks: { draw: [draw] } };
}

// The name of each line beside its end, where there is room to the right of the plot.
function names(u) {
  const { left, top, width, height } = u.bbox, ctx = u.ctx, px = uPlot.pxRatio, line = 13 * px;
  const labels = u.series.slice(1).map((series, index) => {
    const values = u.data[index + 1], last = series.show && series.direct ? values.findLastIndex((value, i) => value != null && u.data[0][i] <= u.scales.x.max) : -1;
    return last < 0 ? null : { text: series.label, stroke: series.stroke(u, index + 1), y: Math.min(top + height, Math.max(top, u.valToPos(values[last], "y", true))) };
  }).filter(Boolean).sort((a, b) => a.y - b.y);
  for (let index = 1; index < labels.length; index++) labels[index].y = Math.max(labels[index].y, labels[index - 1].y + line);
  const over = labels.length ? labels[labels.length - 1].y - (top + height) : 0;
  if (over > 0) for (let index = labels.length - 1, most = top + height; index >= 0; index--, most -= line) labels[index].y = Math.min(labels[index].y, most);
  ctx.save();
  ctx.font = 12 * px + "px system-ui, sans-serif"; ctx.textBaseline = "middle"; ctx.textAlign = "left";
  for (const label of labels) { ctx.fillStyle = label.stroke; ctx.fillText(label.text, left + width + 6 * px, label.y); }
  ctx.restore();
}
function widest(labels) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "12px system-ui, sans-serif";
  return Math.max(0, ...labels.map(label => pen.measureText(label).width));
}

function hatch(ctx, colour, strength) {
  const side = 8 * uPlot.pxRatio, tile = document.createElement("canvas");
  tile.width = tile.height = side;
  const pen = tile.getContext("2d");
  pen.strokeStyle = alpha(colour, strength); pen.lineWidth = uPlot.pxRatio;
  pen.beginPath();
  for (const shift of [-side, 0, side]) { pen.moveTo(shift, side); pen.lineTo(shift + side, 0); }
  pen.stroke();
  return ctx.createPattern(tile, "repeat");
}
function alpha(colour, share) {
  const n = parseInt(colour.slice(1), 16);
  return `rgba(${n >> 16}, ${(n >> 8) & 255}, ${n & 255}, ${share})`;
}
function line(label, stroke, dash, value, more) {
  return Object.assign({ label, stroke, dash, width: dash === DOTTED ? 1.25 : 2, value: (u, v) => value(v),
    points: { show: false } }, more);
}
const dots = stroke => ({ points: { show: true, size: 7, width: 2, stroke, fill: css("--card") }, spanGaps: true });

// ---- one chart -----------------------------------------------------------------------------
const switched = new Map();  // whether the reader has switched on what a chart hides at first

function draw(id, height, make) {
  const box = document.getElementById(id);
  if (!box) return;
  const plan = make(box);
  const shown = Boolean(plan) && measured(plan);
  for (const part of withTitle(box)) part.hidden = !shown;
  if (!shown) return;
  const printing = root.classList.contains("printing");
  const width = () => printing ? PRINT_WIDTH / (box.closest(".pair") ? 2 : 1) : box.clientWidth;
  const small = narrow(box) || printing, hidden = plan.hidden;
  if (narrow(box)) plan.axes[1].label = undefined;
  plan.series[0].label = plan.xLabel;
  plan.series[0].value = (u, v) => plan.xFormat(v);
  const events = plan.events ?? [];
  if (events.length) { plan.axes[0].size += STRIP; plan.axes[0].gap += STRIP; }
  if (hidden) {
    for (const series of plan.series) if (hidden.of(series)) series.show = switched.get(id) ?? false;
    const control = document.createElement("label"), input = document.createElement("input");
    control.className = "switch"; input.type = "checkbox"; input.checked = switched.get(id) ?? false;
    control.append(input, hidden.label);
    box.before(control);  // a picture has no control in it
    drawn.push(() => control.remove());
    input.addEventListener("change", () => {
      switched.set(id, input.checked);
      plan.series.forEach((series, index) => { if (index && hidden.of(series)) plot.setSeries(index, { show: input.checked }); });
    });
  }
  const direct = small ? [] : plan.series.filter(series => series.direct).map(series => series.label);
  const plot = new uPlot({
    width: Math.max(240, width()), height, series: plan.series, axes: plan.axes, scales: plan.scales, bands: plan.between,
    plugins: [marks(plan.bands || [], plan.lines || [], plan.levels || []), ...(events.length ? [strip(events)] : []),
      ...(direct.length ? [{ hooks: { draw: [names] } }] : []), ...(plan.plugins || [])],
    padding: [8, Math.max(28, direct.length ? widest(direct) + 14 : 0), 0, 0],
    legend: { markers: { dash: (u, i) => ({ 2: "dashed", 1: "dotted" })[plan.series[i].dash?.length && (plan.series[i].dash[0] > 1 ? 2 : 1)] ?? "solid" } },
    cursor: { sync: plan.sync ? { key: plan.sync } : undefined, y: false, points: { size: 8 },
      drag: { x: Boolean(plan.sync), y: false } },
  }, plan.data, box);
  const watcher = new ResizeObserver(() => {
    const now = Math.max(240, width());
    if (Math.abs(now - plot.width) > 1) plot.setSize({ width: now, height });
  });
  watcher.observe(box);
  drawn.push(() => { watcher.disconnect(); plot.destroy(); box.replaceChildren(); });
}

// Whether a chart has anything to show: values at two places at least.
function measured(plan) {
  let places = 0;
  plan.data[0].forEach((x, index) => { if (plan.data.slice(1).some(column => column[index] != null)) places++; });
  return places > 1;
}
// A chart with its title, its captions and how to read it: they are hidden with a chart that would be empty.
function withTitle(box) {
  const parts = [box];
  let before = box.previousElementSibling;
  for (; before?.matches(".caption"); before = before.previousElementSibling) parts.push(before);
  if (before?.matches(".chart-title")) parts.push(before);
  if (box.nextElementSibling?.matches(".reading")) parts.push(box.nextElementSibling);
  return parts;
}

// Draws the page's charts. Draws again for another colour scheme, for printing, and when the returned function is called.
function start(drawPage) {
  function drawAll() {
    while (drawn.length) drawn.pop()();
    colours.clear();
    drawPage();
  }
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => { root.classList.add("printing"); drawAll(); });
  addEventListener("afterprint", () => { root.classList.remove("printing"); drawAll(); });
  return drawAll;
}
