// Draws the charts of a report from the document in the page. Nothing is computed here but pixels and labels.
"use strict";
(function () {
  const doc = JSON.parse(document.getElementById("document").textContent);
  const root = document.documentElement;
  root.classList.add("js");
  const drawn = [];
  const PRINT_WIDTH = 680;
  const P50 = [], P99 = [7, 4], MAX = [1, 3];

  const css = name => getComputedStyle(root).getPropertyValue(name).trim();
  const known = { claim: 1, extend: 2, connect: 3,
    "add-machine": 4, deploy: 5, "add-unit": 1, relate: 2, status: 6, "full-status": 7,
    create: 1, start: 2, reachable: 3, probe: 4, launch: 5, delete: 1, evict: 6, poll: 6,
    "cluster-list": 1, "list-fast": 2, list: 3, "operation-list": 4, exec: 5, "network-leases": 6, "network-list": 7,
    "remove-machine": 4, "remove-application": 5, "remove-unit": 1, "remove-relation": 2 };
  const others = (doc.operations || []).filter(name => !known[name]);
  const operationColour = name => css("--op-" + (known[name] || 3 + (others.indexOf(name) % 4)));

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
    const whole = Math.floor(seconds), minutes = Math.floor(whole / 60), rest = String(whole % 60).padStart(2, "0");
    if (minutes < 60) return minutes + ":" + rest;
    return Math.floor(minutes / 60) + ":" + String(minutes % 60).padStart(2, "0") + ":" + rest;
  }

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
  const timeAxis = () => axis({
    size: 30, label: "time since the start (min:s)", space: 60,
    incrs: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400],
    values: (u, ticks) => ticks.map(clock),
  });

  // The sizes that were run are the ticks; those too close to their neighbour are left out.
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

  // ---- what stands behind and on top of the lines ---------------------------------------------
  // bands: {from, to, fill or hatch, label}; lines: {x, label, stroke, dash, upright}
  function marks(bands, lines) {
    const shade = u => {
      const { left, top, width, height } = u.bbox, ctx = u.ctx;
      ctx.save();
      for (const band of bands) {
        const from = Math.max(left, u.valToPos(band.from, "x", true));
        const to = Math.min(left + width, u.valToPos(band.to, "x", true));
        if (to <= from) continue;
        ctx.fillStyle = band.hatch ? hatch(ctx, band.hatch) : band.fill;
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

  function hatch(ctx, colour) {
    const side = 8 * uPlot.pxRatio, tile = document.createElement("canvas");
    tile.width = tile.height = side;
    const pen = tile.getContext("2d");
    pen.strokeStyle = alpha(colour, 0.35); pen.lineWidth = uPlot.pxRatio;
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
    return Object.assign({ label, stroke, dash, width: dash === MAX ? 1.25 : 2, value: (u, v) => value(v),
      points: { show: false } }, more);
  }
  const dots = stroke => ({ points: { show: true, size: 7, width: 2, stroke, fill: css("--card") }, spanGaps: true });

  // ---- one chart -----------------------------------------------------------------------------
  function draw(id, height, make) {
    const box = document.getElementById(id);
    if (!box) return;
    const plan = make(box);
    if (!plan) return;
    const printing = root.classList.contains("printing");
    const width = () => printing ? PRINT_WIDTH / (box.closest(".pair") ? 2 : 1) : box.clientWidth;
    if (narrow(box)) plan.axes[1].label = undefined;
    plan.series[0].label = plan.xLabel;
    plan.series[0].value = (u, v) => plan.xFormat(v);
    const plot = new uPlot({
      width: Math.max(240, width()), height, series: plan.series, axes: plan.axes, scales: plan.scales,
      plugins: [marks(plan.bands || [], plan.lines || [])], padding: [8, 20, 0, 0],
      legend: { markers: { dash: (u, i) => ({ 2: "dashed", 1: "dotted" })[plan.series[i].dash?.length && (plan.series[i].dash[0] > 1 ? 2 : 1)] ?? "solid" } },
      cursor: { sync: plan.sync ? { key: plan.sync } : undefined, y: false, points: { size: 8 },
        drag: { x: Boolean(plan.sync), y: false } },
    }, plan.data, box);
    const watcher = new ResizeObserver(() => {
      const now = Math.max(240, width());
      if (Math.abs(now - plot.width) > 1) plot.setSize({ width: now, height });
    });
    watcher.observe(box);
    drawn.push(() => { watcher.disconnect(); plot.destroy(); });
  }

  // ---- the charts of a run -------------------------------------------------------------------
  function kneesAndCliff(operations) {
    const bands = [], lines = [], tipping = doc.tipping;
    for (const knee of Object.values(tipping.knees)) {
      if (!operations.includes(knee.operation)) continue;
      const colour = operationColour(knee.operation);
      bands.push({ from: knee.low, to: knee.high, fill: alpha(colour, 0.1) });
      lines.push({ x: knee.at, stroke: colour, dash: [3, 3], label: `knee of ${knee.operation} ≈ ${count(Number(knee.at.toPrecision(2)))}` });
    }
    if (tipping.cliff) {
      const cliff = tipping.cliff, colour = css("--cliff");
      if (cliff.last_held != null) bands.push({ from: cliff.last_held, to: cliff.first_broken, hatch: colour });
      lines.push({ x: cliff.first_broken, stroke: colour, label: `cliff at ${count(cliff.first_broken)}` });
    }
    return { bands, lines };
  }

  function latencyAgainstLoad(operations) {
    const sizes = [...new Set(doc.by_load.map(point => point.size))];
    operations = operations.filter(name => doc.by_load.some(point => point.operations[name].count));
    if (!sizes.length || !operations.length) return null;
    const column = (storm, operation, name) => sizes.map(size => {
      const point = doc.by_load.find(p => p.size === size && p.storm === storm);
      return point ? point.operations[operation][name] : null;
    });
    const data = [sizes], series = [{}];
    for (const operation of operations) {
      const colour = operationColour(operation);
      for (const [name, dash] of [["p50", P50], ["p99", P99]]) {
        data.push(column(false, operation, name));
        series.push(line(`${operation} ${name}`, colour, dash, latency, dots(colour)));
      }
    }
    for (const operation of operations) {
      const storms = column(true, operation, "p99"), colour = operationColour(operation);
      if (storms.every(value => value == null)) continue;
      data.push(storms);
      series.push(line(`${operation} p99 in a storm (●)`, colour, P50, latency,
        { paths: () => null, points: { show: true, size: 11, width: 2, stroke: colour, fill: colour } }));
    }
    return { data, series, axes: [loadAxis(sizes, stageSize(doc.run.load_unit)), latencyAxis()],
      scales: { x: loadScale(sizes), y: latencyScale }, xLabel: doc.run.load_unit, xFormat: count, ...kneesAndCliff(operations) };
  }

  // Each part of a stage stands where it was half done.
  function growthAgainstCount() {
    const middle = value => doc.run.instances ? Math.round(value) : Number(value.toPrecision(3));
    const parts = doc.growth.filter(part => part.kind !== "destroy" && part.to > part.from).map(part => ({ x: middle((part.from + part.to) / 2), ...part }));
    const xs = [...new Set(parts.map(part => part.x))].sort((a, b) => a - b);
    if (!xs.length) return null;
    const rates = xs.map(x => parts.filter(part => part.x === x)).map(here =>
      here.reduce((sum, part) => sum + part.per_second, 0) / here.length), stroke = css("--held");
    const things = doc.run.things;
    return { data: [xs, rates], series: [{}, line("made", stroke, P50, perSecond, { width: 1.25, ...dots(stroke) })], axes: [loadAxis(xs, `${things} there`), plainAxis(`${things} per second`, count)],
      scales: { x: loadScale(xs), y: fromZero }, xLabel: `${things} there`, xFormat: count };
  }

  function throughputAgainstLoad() {
    const forecast = doc.tipping.forecast, unit = doc.run.load_unit;
    const measured = doc.by_load.filter(point => !point.storm && point.throughput != null);
    if (!forecast || !measured.length) return null;
    const xs = [...new Set([...measured.map(p => p.size), ...forecast.curve.map(p => p[0])])].sort((a, b) => a - b);
    const points = new Map(measured.map(p => [p.size, p.throughput])), curve = new Map(forecast.curve.map(p => [p[0], p[1]]));
    const colour = css("--op-3"), soft = css("--soft"), end = xs[xs.length - 1];
    const bands = [{ from: forecast.largest_measured, to: end * 2, fill: css("--stage"), label: "not measured: forecast" }];
    const lines = [];
    if (forecast.peak_load != null) {
      bands.push({ from: forecast.peak_low ?? forecast.peak_load, to: forecast.peak_high ?? end * 2, fill: alpha(colour, 0.1) });
      lines.push({ x: forecast.peak_load, stroke: colour, dash: [3, 3], label: `largest throughput ≈ ${count(Number(forecast.peak_load.toPrecision(2)))} ${unit}` });
    }
    const sizes = [...new Set([...measured.map(p => p.size), end])];
    return { data: [xs, xs.map(x => points.get(x) ?? null), xs.map(x => curve.get(x) ?? null)],
      series: [{}, line("measured", colour, P50, perSecond, { paths: () => null, points: { show: true, size: 9, width: 2, stroke: colour, fill: css("--card") } }),
        line("fitted law", soft, P99, perSecond, { spanGaps: true, width: 1.5 })],
      axes: [loadAxis(measured.map(p => p.size), stageSize(unit)), plainAxis("successes per second", count)],
      scales: { x: loadScale(sizes), y: fromZero }, xLabel: unit, xFormat: v => v == null ? "–" : count(Math.round(v)), bands, lines };
  }

  function overTime(columns, axisOfY, scale) {
    const end = doc.timeline.t[doc.timeline.t.length - 1] + doc.timeline.bin_seconds;
    const bands = [];
    for (const stage of doc.stages) {
      const to = stage.end ?? end, up = Math.min(to, stage.hold_begin ?? to);
      const label = count(stage.size) + (["storm", "destroy"].includes(stage.kind) ? " " + stage.kind : "");
      bands.push({ from: stage.begin, to, fill: stage.number % 2 ? css("--stage") : "rgba(0,0,0,0)", label });
      bands.push({ from: stage.begin, to: up, fill: css("--stage-up") });
    }
    const lines = doc.events.marks.map(mark => ({ x: mark.t, label: mark.text, upright: true, dash: [4, 3],
      stroke: css({ fault: "--error", "member-gone": "--lost", "member-back": "--held", leader: "--health" }[mark.kind] ?? "--timeout") }));
    return { data: [doc.timeline.t, ...columns.map(c => c.values)], series: [{}, ...columns.map(c => c.series)],
      axes: [timeAxis(), axisOfY], scales: { x: { time: false, range: () => [0, end] }, y: scale }, sync: "time",
      xLabel: "time", xFormat: clock, bands, lines };
  }
  // A value without neighbours is no line: it gets a dot.
  const alone = (u, i) => u.data[i].map((v, n, all) => v != null && all[n - 1] == null && all[n + 1] == null ? n : -1).filter(n => n >= 0);
  const lone = stroke => ({ points: { show: true, size: 6, stroke, fill: stroke, filter: alone } });

  function drawRun() {
    draw("chart-load", 380, () => latencyAgainstLoad(doc.loading));
    draw("chart-observe", 300, () => latencyAgainstLoad(doc.observing));
    draw("chart-growth", 260, growthAgainstCount);
    draw("chart-throughput", 280, throughputAgainstLoad);
    const timeline = doc.timeline, spawn = doc.run.workload === "spawn";
    if (!timeline) return;
    for (const operation of doc.operations) {
      const found = timeline.latency[operation], colour = operationColour(operation);
      if (!found) continue;
      draw("chart-time-" + operation, 230, () => overTime(
        [["p50", P50], ["p99", P99], ["max", MAX]].map(([name, dash]) => ({ values: found[name],
          series: line(`${operation} ${name}`, colour, dash, latency, lone(colour)) })), latencyAxis(), latencyScale));
    }
    const gauge = (name, label, stroke, dash, format) => ({ values: timeline.gauges[name], series: line(label, stroke, dash, format) });
    if (timeline.gauges.held) {
      draw("chart-held", 210, () => overTime([
        gauge("held", spawn ? `${doc.run.things} there` : `${doc.run.load_unit} held`, css("--held"), P50, count),
        gauge("waiting", spawn ? "still to be made or removed" : "units waiting", css("--waiting"), P99, count)],
        plainAxis(spawn ? doc.run.things : `${doc.run.load_unit}, units`, count), fromZero));
      draw("chart-cpu", 190, () => overTime([gauge("cpu", "CPU of the busiest worker", css("--health"), P50, v => v == null ? "–" : Math.round(v * 100) + " %")],
        plainAxis("share of one core", v => Math.round(v * 100) + " %"), { range: (u, min, max) => [0, Math.max(1, max * 1.1)] }));
      draw("chart-lag", 190, () => overTime([gauge("loop_lag", "event-loop lag, longest", css("--health"), P50, v => v == null ? "–" : digits(v, 3) + " ms")],
        plainAxis("milliseconds", v => count(v) + " ms"), fromZero));
    }
    draw("chart-members", 230, () => overTime(Object.entries(timeline.members).map(([name, values], index) => {
      const colour = css("--op-" + (1 + index % 7));
      return { values, series: line(name, colour, P50, count, { width: 1.5 }) };
    }), plainAxis(`${doc.run.things} on it`, count), fromZero));
    const some = values => values.map(value => value > 0 ? value : null);  // a logarithm has no zero
    draw("chart-ok", 210, () => overTime(Object.entries(timeline.ok).filter(([operation]) => !doc.run.instances || doc.loading.includes(operation)).map(([operation, values]) => ({ values: some(values),
      series: line(spawn ? operation : `${operation}s that succeeded`, operationColour(operation), /^(remove-|delete$)/.test(operation) ? P99 : P50,
        perSecond, lone(operationColour(operation))) })), rateAxis(), rateScale));
    const other = Object.entries(timeline.per_second).map(([outcome, values]) => ({ values: some(values),
      series: line(outcome, css("--" + outcome), ["denied", "limited"].includes(outcome) ? P99 : P50, perSecond, lone(css("--" + outcome))) }));
    if (timeline.connections_lost.length) other.push({ values: some(timeline.connections_lost),
      series: line("connections lost", css("--cliff"), MAX, perSecond, lone(css("--cliff"))) });
    draw("chart-outcomes", 210, () => overTime(other, rateAxis(), rateScale));
  }

  // ---- the charts of a comparison --------------------------------------------------------------
  function drawComparison() {
    for (const operation of doc.operations) {
      const points = doc.by_load.filter(point => point.operation === operation);
      draw("chart-load-" + operation, 340, () => {
        if (!points.length) return null;
        const sizes = points.map(point => point.size), data = [sizes], series = [{}], lines = [];
        doc.runs.forEach((run, index) => {
          const colour = css("--op-" + (1 + index % 6));
          for (const [name, dash] of [["p50", P50], ["p99", P99]]) {
            data.push(points.map(point => point[name][index]));
            series.push(line(`${run.letter} ${name}`, colour, dash, latency, dots(colour)));
          }
          const knee = run.tipping.knees[operation], cliff = run.tipping.cliff;
          if (knee) lines.push({ x: knee.at, stroke: colour, dash: [3, 3], label: `${run.letter}: knee` });
          if (cliff) lines.push({ x: cliff.first_broken, stroke: colour, label: `${run.letter}: cliff` });
        });
        return { data, series, axes: [loadAxis(sizes, stageSize(doc.load_unit)), latencyAxis()],
          scales: { x: loadScale(sizes), y: latencyScale }, xLabel: doc.load_unit, xFormat: count, lines };
      });
    }
  }

  function drawAll() {
    while (drawn.length) drawn.pop()();
    if (doc.kind === "comparison") drawComparison(); else drawRun();
  }
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => { root.classList.add("printing"); drawAll(); });
  addEventListener("afterprint", () => { root.classList.remove("printing"); drawAll(); });
})();
