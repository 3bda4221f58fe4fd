// The charts of a comparison: one colour a run, in the order of the table of runs.
const FEW = 3;  // so many runs have their knees and both percentiles in one chart
const few = doc.runs.length <= FEW;
const runColour = index => css("--op-" + (1 + index % 7));
const runDash = index => [SOLID, DASHED, DOTTED][Math.floor(index / 7) % 3];

// Marks on a run's line: a cross where it breaks and, with many runs, the names of the first and the last.
function ends(sizes, columns, breaks) {
  const draw = u => {
    const ctx = u.ctx, px = uPlot.pxRatio, card = css("--card");
    ctx.save();
    ctx.lineJoin = ctx.lineCap = "round";
    columns.forEach(({ values, colour, name, run }) => {
      const last = values.findLastIndex(value => value != null);
      if (last < 0) return;
      const x = u.valToPos(sizes[last], "x", true), y = u.valToPos(values[last], "y", true);
      if (breaks && run.reach.broken != null) cross(ctx, u, sizes, values, run.reach.broken, colour, card, px);
      if (few || ![0, doc.runs.length - 1].includes(doc.runs.indexOf(run))) return;
      ctx.font = 11 * px + "px system-ui, sans-serif"; ctx.textBaseline = "middle"; ctx.textAlign = "right";
      ctx.lineWidth = 3 * px; ctx.strokeStyle = card; ctx.fillStyle = colour;
      ctx.strokeText(name, x - 7 * px, y - 9 * px); ctx.fillText(name, x - 7 * px, y - 9 * px);
    });
    ctx.restore();
  };
  return { hooks: { draw: [draw] } };
}
function cross(ctx, u, sizes, values, broken, colour, card, px) {
  const place = sizes.indexOf(broken);
  if (place < 0 || values[place] == null) return;
  const x = u.valToPos(broken, "x", true), y = u.valToPos(values[place], "y", true), arm = 6 * px;
  for (const [width, stroke] of [[6, card], [2.75, css("--cliff")]]) {
    ctx.lineWidth = width * px; ctx.strokeStyle = stroke;
    ctx.beginPath();
    ctx.moveTo(x - arm, y - arm); ctx.lineTo(x + arm, y + arm); ctx.moveTo(x + arm, y - arm); ctx.lineTo(x - arm, y + arm);
    ctx.stroke();
  }
}

// For a few runs: the range of loads in which each tips, and the knee of the operation's latency.
function tippings(operation) {
  const bands = [], lines = [];
  if (!few) return { bands, lines };
  doc.runs.forEach((run, index) => {
    const colour = runColour(index), { held, broken } = run.reach, knee = run.tipping.knees[operation];
    if (knee) lines.push({ x: knee.at, stroke: colour, dash: [3, 3], label: `${run.label}: knee`, upright: true });
    if (broken == null) return;
    if (held != null) bands.push({ from: held, to: broken, fill: alpha(colour, 0.1) });
    lines.push({ x: broken, stroke: colour, label: `${run.label} tips`, upright: true });
  });
  return { bands, lines };
}

function againstLoad(sizes, columns, yAxis, scale, format, more = {}) {
  const series = columns.map(({ name, values, index, dash }) => {
    const colour = runColour(index);
    return line(name, colour, dash ?? runDash(index), format, { ...dots(colour), width: few ? 2 : 1.5, direct: few });
  });
  return { data: [sizes, ...columns.map(column => column.values)], series: [{}, ...series],
    axes: [loadAxis(sizes, stageSize(doc.load_unit)), yAxis], scales: { x: loadScale(sizes), y: scale },
    xLabel: doc.load_unit, xFormat: count, ...more };
}

// One line per run; a run without values has none.
function ofRuns(values, dash, suffix = "") {
  return doc.runs.map((run, index) => ({ run, index, name: run.label + suffix, colour: runColour(index), values: values[index], dash }))
    .filter(column => column.values.some(value => value != null));
}

function latencyChart(curve, percentiles) {
  const columns = percentiles.flatMap(([name, dash]) => ofRuns(curve[name], few ? dash : undefined, few ? " " + name : ""));
  if (!columns.length) return null;
  const first = columns.filter(column => column.values === curve[percentiles[0][0]][column.index]);
  return againstLoad(curve.sizes, columns, latencyAxis(), latencyScale, latency,
    { ...tippings(curve.operation), plugins: [ends(curve.sizes, first, true)] });
}

function rateChart(curve) {
  const columns = ofRuns(curve.throughput);
  if (!columns.length) return null;
  return againstLoad(curve.sizes, columns, plainAxis("successes per second", count), fromZero, perSecond,
    { plugins: [ends(curve.sizes, columns, false)] });
}

function resourceChart(figure) {
  const of = name => figure.levels.map(levels => levels.map(level => level && level[name]));
  const columns = ofRuns(of("typical"), SOLID);
  if (few) columns.push(...ofRuns(of("leader"), DASHED, ", leader"));
  return againstLoad(figure.sizes, columns, { ...plainAxis(undefined, quantity(figure.unit)), size: 68 }, fromZero, quantity(figure.unit),
    { plugins: [ends(figure.sizes, columns, false)] });
}

// The trend over the runs: each run is drawn at its number.
function seriesChart() {
  const numbers = doc.runs.map((run, index) => index + 1), series = doc.series;
  const nameOf = number => doc.runs[number - 1]?.label ?? "";
  const colour = css("--op-1"), gap = u => Math.ceil(numbers.length * (16 + 6.5 * Math.max(...doc.runs.map(run => run.label.length))) / u.width);
  return { data: [numbers, series.p50, series.p99],
    series: [{}, line(`${series.operation} p50`, colour, DASHED, latency, dots(colour)), line(`${series.operation} p99`, colour, SOLID, latency, dots(colour))],
    axes: [axis({ size: 30, splits: u => numbers.filter(number => (number - 1) % gap(u) === 0), filter: (u, ticks) => ticks,
      values: (u, ticks) => ticks.map(nameOf) }), latencyAxis()],
    scales: { x: { time: false, range: () => [0.5, numbers.length + 0.5] }, y: latencyScale }, xLabel: "run", xFormat: nameOf };
}

function drawComparison() {
  for (const curve of doc.curves) {
    const main = curve.operation === doc.main;
    draw("chart-load-" + curve.operation, main ? 340 : 260, () => latencyChart(curve, few ? PERCENTILES : [["p50"]]));
    draw("chart-p99-" + curve.operation, 260, () => latencyChart(curve, [["p99"]]));
    draw("chart-rate-" + curve.operation, 260, () => rateChart(curve));
  }
  doc.resources.forEach((figure, number) => draw("chart-resource-" + number, 260, () => resourceChart(figure)));
  draw("chart-series", 260, seriesChart);
}

start(drawComparison);
