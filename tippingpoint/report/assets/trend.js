// The charts of a trend: one figure a chart, one point a run, and a line for each level between changes.
function trendChart(history, figure) {
  const numbers = history.runs.map((run, index) => index + 1);
  const nameOf = number => history.runs[number - 1]?.name ?? "";
  const colour = figure.operation ? operationColour(figure.operation) : css("--op-1");
  const timed = figure.size != null, format = timed ? latency : value => value == null ? "–" : digits(value, 3);
  const longest = Math.max(...history.runs.map(run => run.name.length));
  const gap = u => Math.max(1, Math.ceil(numbers.length * (16 + 7 * longest) * uPlot.pxRatio / u.bbox.width));
  const values = timed ? latencyAxis() : plainAxis(figure.unit, format);
  return { data: [numbers, figure.values, figure.levels],
    series: [{}, line("run", colour, SOLID, format, { ...dots(colour), width: 0 }), line("level", css("--cliff"), SOLID, format, { paths: uPlot.paths.stepped({ align: 1 }) })],
    axes: [axis({ size: 30, splits: u => numbers.filter(number => (number - 1) % gap(u) === 0), filter: (u, ticks) => ticks,
      values: (u, ticks) => ticks.map(nameOf) }), values],
    scales: { x: { time: false, range: () => [0.5, numbers.length + 0.5] }, y: timed ? latencyScale : fromZero },
    xLabel: "run", xFormat: nameOf };
}

start(() => doc.histories.forEach((history, number) => history.figures.forEach((figure, place) =>
  draw(`chart-${number}-${place}`, 220, () => trendChart(history, figure)))));
