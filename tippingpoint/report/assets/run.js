// The charts of a run.
// The range in which the target tips is shaded, with the sign at its end; a cliff beyond it has a line of its own.
function whereItTips(operations) {
  const bands = [], lines = [], { point, cliff, knees } = doc.tipping, colour = css("--cliff");
  const about = name => !name || operations.includes(name);
  if (point && about(point.operation)) {
    const word = { knee: "knee", cliff: "cliff", threshold: "threshold missed", limit: "limit" }[point.by];
    if (point.last_held != null) bands.push({ from: point.last_held, to: point.first_beyond, fill: alpha(colour, 0.1) });
    const knee = point.by === "knee" ? knees[point.operation] : null, answer = doc.search?.answer;
    const at = knee ? knee.at : point.by === "limit" ? answer.limit : point.first_beyond;
    const shown = knee || point.by === "limit" ? "≈ " + count(Number(at.toPrecision(2))) : "at " + count(at);
    lines.push({ x: at, stroke: colour, dash: [3, 3], label: `${word}${knee ? " of " + knee.operation : ""} ${shown}` });
  }
  if (cliff && about(cliff.operation) && point?.by !== "cliff")
    lines.push({ x: cliff.first_broken, stroke: colour, dash: [3, 3], label: `cliff at ${count(cliff.first_broken)}` });
  return { bands, lines };
}

// The limits of percentiles in the plan; other than those that are drawn only where an operation has no such limit.
function limitsOf(operations, drawn) {
  const found = new Map();
  for (const operation of operations) {
    const limits = doc.thresholds.filter(entry => entry.operation === operation && /^(p\d+|max)$/.test(entry.limit));
    const near = limits.filter(entry => drawn.includes(entry.limit));
    for (const { limit, allowed } of near.length ? near : limits) {
      const name = limit.replace("p999", "p99.9"), key = `${name} ${allowed}`, level = found.get(key);
      if (level) { level.of.push(operation); level.stroke = css("--soft"); }
      else found.set(key, { y: allowed, stroke: operationColour(operation), name, of: [operation] });
    }
  }
  return [...found.values()].map(level => ({ ...level, label: `${level.of.length > 2 ? level.of.length + " operations" : level.of.join(", ")}: ${level.name} threshold ${latency(level.y)}` }));
}
// An axis that has room for the limits, too, unless they are far from what was measured.
const withLimits = levels => ({ ...latencyScale, range: (u, min, max) => {
  const near = levels.map(level => level.y).filter(y => min != null && y < max * 100 && y > min / 100);
  return logRange(min == null ? min : Math.min(min, ...near), Math.max(max, ...near));
} });

function latencyAgainstLoad(operations) {
  const sizes = [...new Set(doc.by_load.map(point => point.size))];
  operations = operations.filter(name => doc.by_load.some(point => point.operations[name].count));
  if (!operations.length) return null;
  // Of one sample there is no 99th percentile.
  const column = (storm, operation, name) => sizes.map(size => {
    const point = doc.by_load.find(p => p.size === size && p.storm === storm), found = point?.operations[operation];
    return found && (name === "p50" || found.count > 1) ? found[name] : null;
  });
  const data = [sizes], series = [{}], many = operations.length > 2;
  for (const operation of operations) {
    const colour = operationColour(operation);
    for (const [name, dash] of PERCENTILES) {
      data.push(column(false, operation, name));
      series.push(line(`${operation} ${name}`, colour, dash, latency, { ...dots(colour), direct: true, ...(many && name === "p50" ? { class: "switched" } : {}) }));
    }
  }
  for (const operation of operations) {
    const storms = column(true, operation, "p99"), colour = operationColour(operation);
    if (storms.every(value => value == null)) continue;
    data.push(storms);
    series.push(line(`${operation} p99 in a storm (●)`, colour, SOLID, latency,
      { paths: () => null, points: { show: true, size: 11, width: 2, stroke: colour, fill: colour } }));
  }
  const levels = limitsOf(operations, ["p99", "p50"]);
  return { data, series, axes: [loadAxis(sizes, stageSize(doc.run.load_unit)), latencyAxis()], levels,
    scales: { x: loadScale(sizes), y: withLimits(levels) }, xLabel: doc.run.load_unit, xFormat: count, ...whereItTips(operations),
    hidden: many ? { label: "with medians", of: entry => entry.class === "switched" } : undefined };
}

// Each part of a stage is drawn at its middle.
function growthAgainstCount() {
  const middle = value => doc.run.instances ? Math.round(value) : Number(value.toPrecision(3));
  const parts = doc.growth.filter(part => part.kind !== "destroy" && part.to > part.from).map(part => ({ x: middle((part.from + part.to) / 2), ...part }));
  const xs = [...new Set(parts.map(part => part.x))].sort((a, b) => a - b);
  if (!xs.length) return null;
  const rates = xs.map(x => parts.filter(part => part.x === x)).map(here =>
    here.reduce((sum, part) => sum + part.per_second, 0) / here.length), stroke = css("--held");
  const there = doc.rally.length ? "iterations done" : `${doc.run.things} present`;
  return { data: [xs, rates], series: [{}, line("made", stroke, SOLID, perSecond, { width: 1.25, ...dots(stroke) })], axes: [loadAxis(xs, there), plainAxis(`${there.split(" ")[0]} per second`, count)],
    scales: { x: loadScale(xs), y: fromZero }, xLabel: there, xFormat: count };
}

const countAxis = label => axis({ size: 30, label, values: (u, ticks) => ticks.map(v => Number.isInteger(v) ? count(v) : "") });

// Duration of a step by the number of things: the median solid, the maximum dotted.
function lifeAgainstCount() {
  const life = doc.life, things = doc.run.things;
  if (!life) return null;
  const columns = Object.entries(life.latency).flatMap(([name, found]) => [["p50", "median", SOLID], ["max", "longest", DOTTED]].map(([measure, words, dash]) => ({
    values: found[measure], series: line(`${name} ${words}`, operationColour(name), dash, latency, { spanGaps: true, ...(dash === SOLID ? { width: 2 } : {}) }) })));
  return { data: [life.things, ...columns.map(c => c.values)], series: [{}, ...columns.map(c => c.series)],
    axes: [countAxis(`${things} present`), latencyAxis()], scales: { x: { time: false, range: () => [0, life.things[life.things.length - 1] * 1.02] }, y: latencyScale },
    xLabel: `${things} present`, xFormat: count };
}

// Hosts in order, the emptiest first. A step in the line shows a group that the scheduler treats differently.
function spreadOverHosts() {
  const stages = doc.spread.stages, most = Math.max(...stages.map(stage => stage.hosts));
  const ranks = Array.from({ length: most }, (_, index) => index + 1);
  const shown = stages.slice(-7);
  return { data: [ranks, ...shown.map(stage => ranks.map(rank => stage.counts[rank - 1] ?? null))],
    series: [{}, ...shown.map((stage, index) => line(`stage ${stage.stage}`, css("--op-" + (1 + index % 7)), SOLID, count,
      { width: stage === shown[shown.length - 1] ? 2.5 : 1.25, ...(most > 60 ? {} : dots(css("--op-" + (1 + index % 7)))) }))],
    axes: [countAxis("hosts, the emptiest first"), plainAxis(`${doc.run.things} on it`, count)],
    scales: { x: { time: false, range: () => [0.5, most + 0.5] }, y: fromZero }, xLabel: "host", xFormat: count };
}

function throughputAgainstLoad() {
  const forecast = doc.tipping.forecast, unit = doc.run.load_unit;
  const measured = doc.by_load.filter(point => !point.storm && point.throughput != null);
  if (!forecast || !measured.length) return null;
  const xs = [...new Set([...measured.map(p => p.size), ...forecast.curve.map(p => p[0])])].sort((a, b) => a - b);
  const points = new Map(measured.map(p => [p.size, p.throughput])), curve = new Map(forecast.curve.map(p => [p[0], p[1]]));
  const colour = css("--op-3"), soft = css("--soft"), end = xs[xs.length - 1];
  const bands = [{ from: forecast.largest_measured, to: end * 2, hatch: css("--soft"), label: "not measured: forecast" }];
  const lines = [];
  if (forecast.peak_load != null) {
    lines.push({ x: forecast.peak_load, stroke: colour, dash: [3, 3], label: `largest throughput ≈ ${count(Number(forecast.peak_load.toPrecision(2)))} ${unit}` });
  }
  const sizes = [...new Set([...measured.map(p => p.size), end])];
  return { data: [xs, xs.map(x => points.get(x) ?? null), xs.map(x => curve.get(x) ?? null)],
    series: [{}, line("measured", colour, SOLID, perSecond, { paths: () => null, points: { show: true, size: 9, width: 2, stroke: colour, fill: css("--card") } }),
      line("fitted law", soft, DASHED, perSecond, { spanGaps: true, width: 1.5 })],
    axes: [loadAxis(measured.map(p => p.size), stageSize(unit)), plainAxis("successes per second", count)],
    scales: { x: loadScale(sizes), y: fromZero }, xLabel: unit, xFormat: v => v == null ? "–" : count(Math.round(v)), bands, lines };
}

// The chance that a load passes: best estimate, 95 % band, and every probe at the height of its outcome.
const outcomeOf = probe => probe.held == null ? "inconclusive" : probe.held ? "passed" : "failed";
const outcomeColour = name => css({ passed: "--held", failed: "--error", "inconclusive": "--soft" }[name]);
function intervalOfLimit() {
  const answer = doc.search.answer, to = answer.high ?? Infinity;
  return answer.limit == null ? [] : [{ from: answer.low, to, fill: alpha(css("--cliff"), 0.1) }];
}
function chanceAgainstLoad() {
  const answer = doc.search?.answer;
  if (!answer?.curve.length) return null;
  const first = answer.curve[0].load, last = answer.curve[answer.curve.length - 1].load;
  const shown = doc.search.probes.filter(probe => probe.size >= first * 0.999 && probe.size <= last * 1.001);
  const xs = [...new Set([...answer.curve.map(point => point.load), ...shown.map(probe => probe.size)])].sort((a, b) => a - b);
  const at = new Map(answer.curve.map(point => [point.load, point]));
  const column = name => xs.map(x => at.get(x)?.[name] ?? null);
  const height = { passed: 1.06, failed: -0.06, "inconclusive": 0.5 }, colour = css("--op-3"), percent = v => v == null ? "–" : Math.round(v * 100) + " %";
  const tried = Object.keys(height).filter(name => shown.some(probe => outcomeOf(probe) === name)).map(name => ({
    values: xs.map(x => shown.some(probe => probe.size === x && outcomeOf(probe) === name) ? height[name] : null),
    series: line(`probes that ${name === "inconclusive" ? "were inconclusive" : name}`, outcomeColour(name), SOLID, v => v == null ? "–" : "yes",
      { paths: () => null, points: { show: true, size: 9, width: 1.5, stroke: outcomeColour(name), fill: alpha(outcomeColour(name), 0.5) } }) }));
  return { data: [xs, column("chance"), column("low"), column("high"), ...tried.map(c => c.values)],
    series: [{}, line("chance to pass", colour, SOLID, percent, { spanGaps: true }), line("95 % from", colour, DOTTED, percent, { spanGaps: true }),
      line("95 % to", colour, DOTTED, percent, { spanGaps: true }), ...tried.map(c => c.series)],
    between: [{ series: [3, 2], fill: alpha(colour, 0.12) }],
    axes: [loadAxis(niceLoads(first, last), doc.run.load_unit), axis({ size: 56, label: "chance to pass", splits: () => [0, 0.25, 0.5, 0.75, 1], values: (u, ticks) => ticks.map(percent) })],
    scales: { x: loadScale([first, last]), y: { range: () => [-0.14, 1.14] } }, xLabel: doc.run.load_unit, xFormat: v => v == null ? "–" : count(Number(v.toPrecision(4))),
    bands: intervalOfLimit(), lines: answer.limit == null ? [] : [{ x: answer.limit, stroke: css("--cliff"), dash: [3, 3], label: `limit ≈ ${count(Number(answer.limit.toPrecision(2)))}` }] };
}
function niceLoads(first, last) {
  const found = [];
  for (let power = Math.floor(Math.log10(first)); power <= Math.ceil(Math.log10(last)); power++)
    for (const step of last / first > 10 ? [1, 2, 5] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8]) {
      const load = Number((step * 10 ** power).toPrecision(3));
      if (load >= first && load <= last) found.push(load);
    }
  return found;
}

// Each probe is a bar at its load, from its begin to its end in the search.
function probesOverTime() {
  const probes = doc.search?.probes ?? [];
  if (!probes.length) return null;
  // Bars end a little before the next begins, so that no line joins them.
  const gap = (probes[probes.length - 1].began + probes[probes.length - 1].seconds) / 400, end = probe => probe.began + Math.max(probe.seconds - gap, 0);
  const xs = [...new Set(probes.flatMap(probe => [probe.began, end(probe), end(probe) + gap / 2]))].sort((a, b) => a - b);
  const names = ["passed", "failed", "inconclusive"].filter(name => probes.some(probe => outcomeOf(probe) === name));
  const columns = names.map(name => xs.map(x => {
    const probe = probes.find(each => outcomeOf(each) === name && x >= each.began && x <= end(each));
    return probe ? probe.size : null;
  }));
  const answer = doc.search.answer, sizes = probes.map(probe => probe.size), low = Math.min(...sizes), high = Math.max(...sizes);
  const shade = u => {
    if (answer.limit == null) return;
    const { left, top, width, height } = u.bbox, ctx = u.ctx, clip = y => Math.min(top + height, Math.max(top, y));
    const from = clip(u.valToPos(answer.high ?? high * 2, "y", true)), to = clip(u.valToPos(Math.max(answer.low, 1e-9), "y", true));
    ctx.save(); ctx.fillStyle = alpha(css("--cliff"), 0.1); ctx.fillRect(left, from, width, to - from); ctx.restore();
  };
  return { data: [xs, ...columns], series: [{}, ...names.map(name => line(name, outcomeColour(name), SOLID, count, { width: 5 }))],
    axes: [timeAxis("time since the search began (min:s)"), axis({ size: 64, label: doc.run.load_unit, splits: (u, i, min, max) => logTicks(min, max), filter: (u, ticks) => ticks, values: (u, ticks) => ticks.map(count) })],
    scales: { x: { time: false }, y: { distr: 3, log: 10, range: () => [low / 1.3, high * 1.3] } }, xLabel: "time", xFormat: clock, plugins: [{ hooks: { drawClear: [shade] } }] };
}

// All charts over time share one axis. It covers the load and the figures measured just before and after it.
const AROUND = 0.05;
let resources = doc.resources, timeEnds = [0, 1];  // as the document is now
function endsOfTime() {
  const times = resources && resources.t.length ? [resources.t[0], resources.t[resources.t.length - 1]] : [0, 1];
  if (!doc.timeline) return times;
  const end = doc.timeline.t[doc.timeline.t.length - 1] + doc.timeline.bin_seconds;
  return resources ? [Math.min(0, Math.max(times[0], -AROUND * end)), Math.max(end, Math.min(times[1], (1 + AROUND) * end))] : [0, end];
}
// A chart that is not zoomed shows the time range of all charts. A zoomed one keeps the reader's choice.
const timeRange = t => (u, min, max) => t.length < 2 || (min === t[0] && max === t[t.length - 1]) ? timeEnds : [min, max];

const markColour = kind => css({ fault: "--error", "member-gone": "--lost", "member-back": "--held", leader: "--health", stall: "--health", "agent-down": "--denied" }[kind] ?? "--timeout");
function overTime(t, columns, axisOfY, scale, more) {
  const bands = [], lines = [];
  for (const stage of doc.stages) {
    const to = stage.end ?? timeEnds[1], up = Math.min(to, stage.hold_begin ?? to);
    const label = count(stage.size) + (["storm", "destroy", "recover"].includes(stage.kind) ? " " + stage.kind : "");
    bands.push({ from: stage.begin, to, fill: "rgba(0,0,0,0)", label });
    bands.push({ from: stage.begin, to: up, fill: css("--stage-up") });
    lines.push({ x: stage.begin, stroke: css("--line") });
  }
  for (const gap of resources?.gaps ?? []) bands.push({ from: gap.from, to: gap.to, hatch: css("--gap") });
  const events = doc.events.marks.map(mark => ({ x: mark.t, label: mark.label ?? mark.text, stroke: markColour(mark.kind) }));
  return { data: [t, ...columns.map(c => c.values)], series: [{}, ...columns.map(c => c.series)],
    axes: [timeAxis("time since the start (min:s)"), axisOfY], scales: { x: { time: false, range: timeRange(t) }, y: scale }, sync: "time",
    xLabel: "time", xFormat: moment, bands, lines, events, ...more };
}
// A moment, with the event that is nearest to it.
function moment(t) {
  if (t == null) return clock(t);
  const near = doc.events.marks.filter(mark => Math.abs(mark.t - t) <= (timeEnds[1] - timeEnds[0]) / 100);
  return clock(t) + (near.length ? ": " + near.map(mark => mark.text).slice(0, 2).join(", ") : "");
}
// A value without neighbours makes no line, so it gets a dot.
const alone = (u, i) => u.data[i].map((v, n, all) => v != null && all[n - 1] == null && all[n + 1] == null ? n : -1).filter(n => n >= 0);
const lone = stroke => ({ points: { show: true, size: 6, stroke, fill: stroke, filter: alone } });

// ---- the target's figures --------------------------------------------------------------------
const hostColours = index => css("--op-" + (1 + index % 8));

// Few series: one line each, coloured by host (by part, if there is one host) and dashed by part. A broad line
// underneath marks the leader.
function linesOfHosts(figure, format) {
  const hosts = [...new Set(figure.lines.map(found => found.host))], parts = [...new Set(figure.lines.map(found => found.part))];
  const byHost = hosts.length > 1 && parts.length <= 3;
  const columns = figure.led.map(found => ({ values: found.values,
    series: line(found.part ? `leader, ${found.part}` : "leader", alpha(css("--leader"), 0.4), SOLID, format, { width: 7 }) }));
  figure.lines.forEach((found, index) => {
    const colour = hostColours(byHost ? hosts.indexOf(found.host) : index);
    const label = hosts.length < 2 && found.part ? found.part : [found.host, found.part].filter(Boolean).join(" ");
    columns.push({ values: found.values, series: line(label, colour, byHost ? [SOLID, DASHED, DOTTED][parts.indexOf(found.part)] : SOLID,
      format, { width: 1.5, ...lone(colour) }) });
  });
  return { columns, between: [] };
}

// Many series: for each part, the leader's line and the others' median within their range.
function linesOfRoles(figure, format) {
  const columns = [], between = [], several = figure.roles.length > 1;
  figure.roles.forEach((role, index) => {
    const of = several ? ` ${role.part}` : "", others = role.leader ? "followers" : "hosts";
    const colour = several ? hostColours(index) : css("--followers");
    const edge = (name, values) => columns.push({ values, series: line(name + of, alpha(colour, 0.55), SOLID, format, { width: 0.75 }) });
    edge(`${others}, highest`, role.high);
    edge(`${others}, lowest`, role.low);
    between.push({ series: [columns.length - 1, columns.length], fill: alpha(colour, several ? 0.1 : 0.18) });
    columns.push({ values: role.middle, series: line(`${others}, median${of}`, colour, several ? DASHED : SOLID, format, { width: 1.5 }) });
    if (role.leader) columns.push({ values: role.leader, series: line("leader" + of, several ? colour : css("--leader"), SOLID, format, lone(colour)) });
  });
  return { columns, between };
}

function drawFelt() {
  for (const figure of resources ? resources.figures : []) {
    draw("chart-resources-" + figure.name, 200, () => {
      const format = quantity(figure.unit);
      const { columns, between } = figure.lines.length ? linesOfHosts(figure, format) : linesOfRoles(figure, format);
      const most = Math.max(0, ...columns.flatMap(column => column.values));
      return overTime(resources.t, columns, null, fromZero,
        { between, axes: [timeAxis(), quantityAxis(figure.unit, most)] });
    });
  }
}

// ---- a cluster's own tests --------------------------------------------------------------------
// Times share the axis of all charts over time. Each test's begin is a line with its name along it.
function loadOverTime(columns, label) {
  const tests = doc.cluster_tests, failed = css("--error"), soft = css("--soft");
  const events = tests.tests.map(test => ({ x: test.t, label: test.test, stroke: test.outcome === "failed" ? failed : soft }));
  return { ...overTime(tests.load.t, columns, plainAxis(label, count), fromZero), events };
}

function drawTests() {
  const load = doc.cluster_tests?.load;
  if (!load) return;
  const names = Object.keys(load.nodes), shown = v => v == null ? "–" : digits(v, 3);
  const ofNodes = part => names.map((name, index) => ({ values: load.nodes[name][part], series: line(name, hostColours(index), index < 8 ? SOLID : DASHED, shown, { width: name === load.node ? 2.25 : 1.25 }) }));
  // One chart for each cluster, as the author of the published ones drew them. All have one scale.
  const parts = ["1 min", "5 min", "15 min"], most = Math.max(0, ...parts.flatMap(part => load.nodes[load.node][part]));
  for (const stage of doc.stages) draw("chart-test-load-" + stage.number, 260, () => {
    const inside = load.t.map((t, index) => t >= stage.begin && t <= (stage.end ?? Infinity) ? index : -1).filter(index => index >= 0);
    const chosen = values => inside.map(index => values[index]);
    const plan = loadOverTime(parts.map((part, index) => ({ values: chosen(load.nodes[load.node][part]),
      series: line(part, css("--op-" + [1, 2, 3][index]), SOLID, shown) })), "load average");
    return { ...plan, data: [chosen(load.t), ...plan.data.slice(1)], sync: undefined,
      scales: { x: { time: false, range: () => [stage.begin, stage.end ?? timeEnds[1]] }, y: { range: () => [0, most > 0 ? most * 1.12 : 1] } } };
  });
  draw("chart-test-loads", 300, () => loadOverTime(ofNodes("1 min"), "load average"));
  draw("chart-test-cpu", 260, () => loadOverTime(ofNodes("cpu"), "cores"));
}

function drawRun() {
  resources = doc.resources;
  timeEnds = endsOfTime();
  drawTests();
  draw("chart-load", 330, () => latencyAgainstLoad(doc.loading));
  draw("chart-observe", 300, () => latencyAgainstLoad(doc.observing));
  draw("chart-growth", 260, growthAgainstCount);
  draw("chart-life", 320, lifeAgainstCount);
  draw("chart-spread", 240, spreadOverHosts);
  draw("chart-throughput", 280, throughputAgainstLoad);
  draw("chart-chance", 300, chanceAgainstLoad);
  draw("chart-probes", 240, probesOverTime);
  const timeline = doc.timeline, spawn = doc.run.workload !== "claim";
  drawFelt();
  drawProcessors();
  if (!timeline) return;
  for (const operation of doc.operations) {
    const succeeded = timeline.latency[operation], found = timeline.cost[operation] ?? succeeded;
    if (!found) continue;
    draw("chart-time-" + operation, 230, () => {
      const colour = operationColour(operation), soft = css("--soft");
      const columns = [["p50", DASHED], ["p99", SOLID], ["max", DOTTED]].filter(([name]) => found[name]).map(([name, dash]) => ({ values: found[name],
        series: line(`${operation} ${name}`, colour, dash, latency, lone(colour)) })), levels = limitsOf([operation], ["p50", "p99", "max"]);
      if (succeeded && found !== succeeded) columns.push({ values: succeeded.max,
        series: line(`${operation} max, successes alone`, soft, DOTTED, latency, lone(soft)) });
      return overTime(timeline.t, columns, latencyAxis(), withLimits(levels), { levels });
    });
  }
  const gauge = (name, label, stroke, dash, format) => ({ values: timeline.gauges[name], series: line(label, stroke, dash, format) });
  if (timeline.gauges.held) {
    const counted = doc.run.things === "things" ? doc.run.load_unit.replace(/ a call$/, "") : doc.run.things;
    draw("chart-held", 210, () => overTime(timeline.t, [
      gauge("held", doc.rally.length ? "iterations done" : doc.cluster_tests ? (doc.run.load_unit === "nodes" ? "nodes online" : "tests passed") : spawn ? `${counted} present` : `${counted} held`, css("--held"), SOLID, count),
      gauge("waiting", doc.rally.length || doc.cluster_tests ? "still to be done" : spawn ? "still to be made or removed" : "units waiting", css("--waiting"), DASHED, count)],
      plainAxis(doc.rally.length ? "iterations" : doc.cluster_tests ? "nodes, tests" : spawn ? counted : `${counted}, units`, count), fromZero));
    draw("chart-cpu", 190, () => overTime(timeline.t, [gauge("cpu", "CPU of the busiest worker", css("--health"), SOLID, v => v == null ? "–" : Math.round(v * 100) + " %")],
      plainAxis("share of one core", v => Math.round(v * 100) + " %"), { range: (u, min, max) => [0, Math.max(1, max * 1.1)] }));
    const lag = ms => ms == null ? "–" : ms < 1000 ? digits(ms, 3) + " ms" : digits(ms / 1000, 3) + " s";
    draw("chart-lag", 190, () => overTime(timeline.t, [gauge("loop_lag", "event-loop lag, longest", css("--health"), SOLID, lag)], plainAxis("lag", lag), fromZero));
  }
  draw("chart-members", 230, () => overTime(timeline.t, Object.entries(timeline.members).map(([name, values], index) => {
    const colour = css("--op-" + (1 + index % 7));
    return { values, series: line(name, colour, SOLID, count, { width: 1.5 }) };
  }), plainAxis(`${doc.run.things} on it`, count), fromZero));
  const some = values => values.map(value => value > 0 ? value : null);  // a logarithm has no zero
  draw("chart-ok", 210, () => overTime(timeline.t, Object.entries(timeline.ok).filter(([operation]) => !doc.run.instances || doc.loading.includes(operation)).map(([operation, values]) => ({ values: some(values),
    series: line(spawn ? operation : `${operation}s that succeeded`, operationColour(operation), /^(remove-|delete)/.test(operation) ? DASHED : SOLID,
      perSecond, lone(operationColour(operation))) })), rateAxis(), rateScale));
  const other = Object.entries(timeline.per_second).map(([outcome, values]) => ({ values: some(values),
    series: line(outcome, css("--" + outcome), ["denied", "limited"].includes(outcome) ? DASHED : SOLID, perSecond, lone(css("--" + outcome))) }));
  if (timeline.connections_lost.length) other.push({ values: some(timeline.connections_lost),
    series: line("connections lost", css("--cliff"), DOTTED, perSecond, lone(css("--cliff"))) });
  draw("chart-outcomes", 210, () => overTime(timeline.t, other, rateAxis(), rateScale));
}

// Who used the target's processors, and how long the target waited for them.
function drawProcessors() {
  const found = doc.processors, share = v => v == null ? "–" : digits(v * 100, 3) + " %";
  if (!found) return;
  const used = (name, label, stroke, dash) => ({ values: found[name], series: line(label, stroke, dash, share, lone(stroke)) });
  draw("chart-processors", 210, () => overTime(found.t, [
    used("others", "other programs", css("--error"), SOLID), used("target", "the target", css("--held"), SOLID),
    used("ours", "the generator", css("--health"), DASHED), used("steal", "withheld by the hypervisor", css("--soft"), DOTTED)],
    plainAxis("share of the target's processors", v => Math.round(v * 100) + " %"), { range: (u, min, max) => [0, Math.max(1, max * 1.05)] }));
  draw("chart-waited", 210, () => overTime(found.t, [
    { values: found.waited, series: line("waited per second run", css("--held"), SOLID, v => v == null ? "–" : digits(v, 3) + " s", lone(css("--held"))) }],
    plainAxis("seconds", v => digits(v, 3) + " s"), fromZero));
}

const again = start(drawRun);
