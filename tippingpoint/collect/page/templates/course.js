// How a run goes on, drawn with what draws the charts of its report; again whenever the page has taken over what is new.
function overCourse(columns, axisOfY, scale) {
  const end = doc.t[doc.t.length - 1];
  const bands = doc.stages.map(stage => ({ from: stage.from, to: stage.to ?? end,
    fill: stage.number % 2 ? css("--stage") : "rgba(0,0,0,0)",
    label: count(stage.size) + (["storm", "destroy", "recover"].includes(stage.kind) ? " " + stage.kind : "") }));
  const from = Math.min(0, doc.t[0]), to = Math.max(end, from + 1);
  return { data: [doc.t, ...columns.map(column => column.values)], series: [{}, ...columns.map(column => column.series)],
    axes: [timeAxis("time since the start (min:s)"), axisOfY], sync: "time", bands, xLabel: "time", xFormat: clock,
    scales: { x: { time: false, range: (u, min, max) => doc.t.length < 2 || (min === doc.t[0] && max === end) ? [from, to] : [min, max] }, y: scale } };
}
const told = (name, label, stroke, dash, format, scale = 1) => ({
  values: doc[name].map(value => value == null ? null : value * scale),
  series: line(label, stroke, dash, format, { points: { show: doc.t.length < 60, size: 5, stroke, fill: stroke } }) });

function drawCourse() {
  if (!doc.t.length) return;
  const slowest = doc.units > 1 ? " of the slowest unit" : "", colour = css("--op-1");
  draw("chart-latency", 230, () => overCourse([
    told("p50", "p50" + slowest, colour, DASHED, latency, 1000), told("p99", "p99" + slowest, colour, SOLID, latency, 1000)], latencyAxis(), latencyScale));
  draw("chart-held", 210, () => overCourse([
    told("held", `${doc.what} held`, css("--held"), SOLID, count), told("size", "size of the stage", css("--waiting"), DASHED, count)],
    plainAxis(doc.what, count), fromZero));
  draw("chart-rate", 210, () => overCourse([told("rate", "per second", css("--op-3"), SOLID, perSecond)], plainAxis("per second", count), fromZero));
  if (document.getElementById("failures").hidden) return;
  draw("chart-failures", 190, () => overCourse([
    told("errors", "errors", css("--error"), SOLID, count), told("lost", "lost", css("--lost"), DASHED, count)], plainAxis("since the start", count), fromZero));
}

function show() {
  document.getElementById("course").hidden = !doc.t.length;
  document.getElementById("failures").hidden = ![...doc.errors, ...doc.lost].some(value => value > 0);
}

let before = document.getElementById("document").textContent;
show();
const again = start(drawCourse);
document.addEventListener("taken", () => {
  const text = document.getElementById("document").textContent;
  if (text === before) return;
  before = text;
  Object.assign(doc, JSON.parse(text));
  show();
  again();
});
