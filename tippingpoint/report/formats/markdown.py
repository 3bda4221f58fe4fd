"""Renders a report as short Markdown, for an action's output or a pull request: the verdict and the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tippingpoint.plan.kinds import facts_of, target_name
from tippingpoint.report import figures
from tippingpoint.report.formats.markup import MOST_LINES, bullets, joined, plain, section, table
from tippingpoint.util.text import choose, show_amount, show_count

_T = TypeVar("_T")

_ALONE = "successes alone"
_MOST_STAGES = 24
_BADGES = {"met": "✅ met", "missed": "❌ missed", "withheld": "❔ withheld", "failed": "❗ failed"}
_MARKS = {True: "✅ met", False: "❌ missed", None: "– not judged"}


def render_run(document: dict[str, Any]) -> str:
    """Render a run's document as Markdown."""
    run, verdict, unit = document["run"], document["verdict"], document["run"]["load_unit"]
    target = target_name(run["target"]["kind"], run["target"]["version"])
    named = run["target"]["members"]
    members = f", {show_count(len(named), _member(run))}" if named else ""
    what = [f"{plain(target)}{members}"]
    what += [f"plan {plain(run['plan'])}"] if run["plan"] else []
    what += [run["started"]] if run["source"] == "run" else [plain(run["origin"])]
    what += [run["status"] + (f": {plain(run['reason'])}" if run["reason"] else "")]
    what += (
        [f"{'at' if run['instances'] else 'controller'} {plain(run['controller'])}"]
        if run["controller"]
        else []
    )
    what += [f"identity {run['identity']}"] if run["identity"] else []
    blocks = [
        f"# {plain(run['title'])}: {_badge(document)}",
        f"**On a simulator, not on a real {_called_real(run)}.**" if run["simulated"] else "",
        f"**{plain(verdict['sentence'])}**",
        plain(document["tipping"]["sentence"]),
        *(plain(cause["sentence"]) for cause in document["causes"]),
        plain(document["resources"]["sentence"]) if document["resources"] else "",
        bullets([reason for reason in verdict["reasons"] if reason not in verdict["sentence"]]),
        _cautions(document["cautions"]),
        " · ".join(part for part in what if part) + f" · run `{plain(run['id']).replace('`', '')}`",
        _thresholds(document["thresholds"], unit),
        *(section(*_cause(cause, unit)) for cause in document["causes"]),
        section("Profiles of the target", _profiles(document.get("profiles"), unit)),
        section(
            "Response times of user commands, p50 / p99",
            _timings(document["timings"], run["things"], _member(run)),
        ),
        section("The cluster's own tests", _cluster_tests(document)),
        section("The search", _search(document["search"], unit)),
        section("Recovery", _recovery(document.get("recovery"))),
        section("After the cliff", _comeback(document.get("comeback"), unit)),
        section("Events", _happened(document["happened"])),
        section("Generator health", _generator(document["generator"], unit)),
        section("The target's processors", _processors(document.get("processors"), unit)),
        section(*_members(document)),
        section("Agents that went down", _agents(document)),
        *_resources(document["resources"]),
        section("Resource cost of one operation", _operation_costs(document)),
        section("Missing metrics of the target", bullets(_missing(document))),
        *_operations(document, unit),
        _growth(document, unit),
        section("Retries", _retries(document)),
        _errors(document),
        section("Units", _units(document["units"])),
        section("Notes", bullets(document["notes"])),
    ]
    return joined(blocks)


def _search(search: dict[str, Any] | None, unit: str) -> str:
    """Render the probes of a search, and the limits by further thresholds."""
    if search is None:
        return ""
    outcomes = {True: "passed", False: "failed", None: "inconclusive"}
    rows = [
        [
            figures.number(probe["size"]),
            outcomes[probe["held"]],
            figures.number(round(probe["seconds"], 1)),
            plain(probe["words"].partition(": ")[2]),
        ]
        for probe in search["probes"][:MOST_LINES]
    ]
    left_out = len(search["probes"]) - len(rows)
    return joined(
        [
            bullets([f"{each['threshold']}: {each['sentence']}" for each in search["further"]]),
            table([unit, "outcome", "seconds", "what it showed"], rows, text=(1, 3), left_out=left_out),
            search.get("unknown", ""),
        ]
    )


def _called_real(run: dict[str, Any]) -> str:
    kind = run["target"]["kind"]
    return facts_of(kind).called_real or kind


def _badge(document: dict[str, Any]) -> str:
    outcome = document["verdict"]["outcome"]
    return "no thresholds" if outcome == "met" and not document["verdict"]["checks"] else _BADGES[outcome]


def _thresholds(entries: Sequence[dict[str, Any]], unit: str) -> str:
    rows = [
        [
            entry["operation"],
            figures.limit_name(entry["limit"]),
            ("≥ " if entry["limit"] == "throughput" else "≤ ")
            + figures.measured(entry["allowed"], entry["limit"], entry.get("unit", "")),
            figures.measured(entry["worst"], entry["limit"], entry.get("unit", "")),
            figures.number(entry["size"]),
            _result(entry),
        ]
        for entry in entries[:MOST_LINES]
    ]
    header = ["operation", "measure", "threshold", "worst", f"at {unit}", "result"]
    return section("Thresholds", table(header, rows, text=(0, 1, 5), left_out=len(entries) - len(rows)))


def _result(entry: dict[str, Any]) -> str:
    """Say whether a threshold was met; in a search, up to its answer, because larger loads are meant to miss it."""
    probes = entry.get("probes")
    if probes and entry["met"] is None:
        return f"{_MARKS[None]}; {probes}".replace("; not judged ", " ")
    if probes:
        return f"{_MARKS[entry['met']]}{' up to the limit' if entry['met'] else ''}; {probes}"
    return _MARKS[entry["met"]] + (f": {entry['why']}" if entry["met"] is None and entry["why"] else "")


def _cause(cause: dict[str, Any], unit: str) -> tuple[str, str]:
    """Render the evidence for what bound the target at one sign of tipping: a heading and a table."""
    rows = [
        [
            " ".join(filter(None, (each["title"], each["part"] and f"({each['part']})"))),
            each["host"],
            figures.quantity(each["plateau"], each["unit"]),
            figures.quantity(each["tipped"], each["unit"]),
            figures.quantity(each["others"], each["unit"]),
            f"{each['limit_is']} {figures.quantity(each['limit'], each['unit'])}",
            each["result"],
        ]
        for each in cause["evidence"]
    ]
    header = ["figure", "host", "on the plateau", "where it tipped", "other hosts", "saturated", "result"]
    heading = f"Why it tipped: the {cause['sign']}, seen at {figures.amount(cause['load'], unit)}"
    return heading, table(header, rows, text=(0, 1, 5, 6)) if rows else ""


def _profiles(profiles: dict[str, Any] | None, unit: str) -> str:
    """Render the findings of profiles, and for each kind the functions whose share changed most."""
    if profiles is None:
        return ""
    blocks = [bullets(profiles["sentences"])]
    for shift in profiles["shifts"]:
        plateau, tipped = (figures.number(shift[f"{at}_load"]) for at in ("plateau", "tipped"))
        header = [
            f"function, by its share of {shift['kind']}",
            *(f"{load} {unit}" for load in (plateau, tipped)),
        ]
        header += [f"with calls, {load}" for load in (plateau, tipped)]
        rows = [
            [
                each["name"] + (" (by chance)" if each["chance"] else ""),
                *(
                    figures.share(each[f"{part}_{at}"])
                    for part in ("own", "all")
                    for at in ("plateau", "tipped")
                ),
            ]
            for each in shift["functions"]
        ]
        blocks.append(table(header, rows, text=(0,)))
    return joined(blocks)


def _rally(document: dict[str, Any], unit: str) -> list[str]:
    """Render Rally's table for each stage."""
    header = [
        *("action", "min (sec)", "median", "90 %ile", "95 %ile", "99 %ile", "max", "avg", "success", "count"),
        *(("service median", "service 99 %ile", "service max") if document["has_service_times"] else ()),
    ]
    columns = ("min", "p50", "p90", "p95", "p99", "max", "mean")
    blocks: list[str] = []
    for stage in _spread(document["stages"]):
        rows: list[list[str]] = []
        for row in document["rally"]:
            measured = stage["operations"].get(row["operation"])
            if measured is not None:
                name = f"{'-> ' * row['depth']}{row['operation']}"
                rows += _waited(
                    name,
                    f"{name}, {_ALONE}",
                    measured,
                    columns,
                    figures.seconds_of,
                    service=document["has_service_times"],
                )
        heading = f"Stage {stage['number']}, {show_amount(stage['size'], unit)}, as Rally's table"
        blocks.append(section(heading, table(header, rows, text=(0,))))
    return blocks


def _operations(document: dict[str, Any], unit: str) -> list[str]:
    if document["rally"]:
        return _rally(document, unit)
    columns = ("min", "mean", "max", "p50", "p90", "p95", "p99", "p999")
    blocks: list[str] = []
    for name in document["operations"]:
        stages = [stage for stage in document["stages"] if name in stage["operations"]]
        service = any(stage["operations"][name]["service"] for stage in stages)
        header = [unit, "min", "avg", "max", "50 %", "90 %", "95 %", "99 %", "99.9 %", "success", "count"]
        header += ["service 50 %", "service 99 %", "service max"] if service else []
        kept = _spread(stages)
        rows: list[list[str]] = []
        for stage in kept:
            measured = stage["operations"][name]
            rows += _waited(
                _load(stage), f"{name}, {_ALONE}", measured, columns, figures.milliseconds, service=service
            )
        rendered = table(header, rows, left_out=len(stages) - len(kept))
        blocks.append(section(f"{plain(name)}, response time in ms", rendered))
    return blocks


def _load(stage: dict[str, Any]) -> str:
    return figures.number(stage["size"]) + ("" if stage["kind"] == "ramp" else f" {stage['kind']}")


def _waited(
    name: str,
    alone: str,
    measured: dict[str, Any],
    columns: Sequence[str],
    shown: Callable[[Any], str],
    *,
    service: bool,
) -> list[list[str]]:
    """Render a row that includes failures with the time they took, and a row of successes alone if they differ.

    Only successes have service times.
    """
    nothing: dict[str, Any] = dict.fromkeys(("p50", "p99", *columns))

    def row(name: str, times: dict[str, Any] | None, counts: Sequence[str], served: Any) -> list[str]:
        more = [shown((served or nothing)[column]) for column in ("p50", "p99", "max")] if service else []
        return [name, *(shown((times or nothing)[column]) for column in columns), *counts, *more]

    counts = (figures.share(measured["success"]), figures.number(measured["attempts"]))
    if measured["cost"] == measured["response"]:
        return [row(name, measured["cost"], counts, measured["service"])]
    return [
        row(name, measured["cost"], counts, None),
        row(alone, measured["response"], ("–", figures.number(measured["ok"])), measured["service"]),
    ]


def _recovery(recovery: dict[str, Any] | None) -> str:
    if recovery is None:
        return ""
    rows = [
        [
            figures.clock(row["t"]),
            row["what"],
            row["noticed_words"],
            row["recovered_words"],
            *(figures.number(row[count]) for count in ("late", "failed", "lost", "ended")),
            f"{row['worst']} {figures.latency(row['worst_us'])}" if row["worst"] else "–",
            figures.latency(row["before_us"]),
        ]
        for row in recovery["rows"][:MOST_LINES]
    ]
    header = ["at", "what", "noticed", "back", "late", "failed", "lost", "of", "worst", "p99 before"]
    rendered = table(header, rows, text=(1, 2, 3, 8), left_out=len(recovery["rows"]) - len(rows))
    return "\n\n".join([plain(recovery["sentence"]), rendered])


def _comeback(comeback: dict[str, Any] | None, unit: str) -> str:
    if comeback is None:
        return ""
    rows = [
        [
            figures.number(step["size"]),
            figures.seconds(step["seconds"]),
            figures.rate(step["served"]),
            step["words"],
        ]
        for step in comeback["steps"]
    ]
    rendered = table([unit, "for", "served", "result"], rows, text=(3,)) if rows else ""
    return "\n\n".join(part for part in (plain(comeback["sentence"]), rendered) if part)


def _happened(entries: Sequence[dict[str, Any]]) -> str:
    """Render the table of events. If there are too many, it keeps the most frequent ones."""
    kept = sorted(entries, key=lambda entry: -entry["count"])[:MOST_LINES]
    rows = [
        [
            entry["what"],
            figures.number(entry["count"]),
            *("–" if t is None else figures.clock(t) for t in (entry["first"], entry["last"])),
            ", ".join(map(str, entry["stages"])) or "–",
        ]
        for entry in entries
        if entry in kept
    ]
    header = ["what", "times", "first", "last", "in stage"]
    return table(header, rows, text=(0, 4), left_out=len(entries) - len(rows))


def _generator(health: dict[str, Any] | None, unit: str) -> str:
    if health is None:
        return ""
    kept = _spread(health["stages"])
    rows = [
        [
            str(stage["number"]),
            _load(stage),
            *(
                figures.latency(stage[f"{lag}_lag_{of}"])
                for lag in ("schedule", "loop")
                for of in ("p99", "max")
            ),
            figures.share(stage["cpu"]),
            figures.number(stage["rss_mib"]),
        ]
        for stage in kept
    ]
    header = [
        *("stage", unit, "sent late, p99", "sent late, max", "event-loop lag, p99", "event-loop lag, max"),
        *("CPU of busiest worker", "memory, MiB"),
    ]
    rendered = table(header, rows, left_out=len(health["stages"]) - len(kept))
    stalls = bullets([f"{figures.clock(stall['t'])} {stall['text']}" for stall in health["stalls"]])
    return "\n\n".join(part for part in (plain(health["sentence"]), rendered, stalls) if part)


def _processors(found: dict[str, Any] | None, unit: str) -> str:
    """Render who used the target's processors."""
    if found is None:
        return ""
    kept = _spread(found["stages"])
    rows = [
        [
            str(stage["number"]),
            _load(stage),
            *(figures.share(stage[name]) for name in ("target", "ours", "others", "steal")),
            figures.number(stage["waited"]),
        ]
        for stage in kept
    ]
    header = ["stage", unit, "target", "generator", "other programs", "withheld by the hypervisor"]
    header.append("waited per second run")
    rendered = table(header, rows, left_out=len(found["stages"]) - len(kept))
    return "\n\n".join((plain(found["sentence"]), rendered))


def _cluster_tests(document: dict[str, Any]) -> str:
    tests = document.get("cluster_tests")
    if tests is None:
        return ""
    rows = [
        [
            figures.clock(test["t"]),
            figures.number(test["nodes"]),
            test["test"],
            figures.seconds(test["seconds"]),
            test["outcome"]
            if test["outcome"] == "passed"
            else ": ".join(filter(None, (test["outcome"], test["assertion"], test["problem"]))),
            "–" if test["longest_update"] is None else figures.latency(test["longest_update"] * 1e6),
            str(test["dc_changes"]),
            ", ".join(test["fenced"]) or "–",
        ]
        for test in tests["tests"]
    ]
    header = ["at", "nodes", "test", "time", "result", "longest update", "DC changes", "fenced"]
    peaks = [
        [
            document["run"]["target"]["version"],
            figures.number(peak["nodes"]),
            *(
                "–" if peak[name] is None else figures.three_digits(peak[name])
                for name in ("1 min", "5 min", "15 min", "cpu")
            ),
        ]
        for peak in tests["peaks"]
    ]
    peaks += [
        [figure["version"], figures.load(figure["at"]), figures.published(figure), "–", "–", "–"]
        for figure in tests["published"]
        if tests["peaks"]
    ]
    loads = table(["Pacemaker", "nodes", "load, 1 min", "5 min", "15 min", "CPU, cores"], peaks, text=(0,))
    return "\n\n".join(
        part
        for part in (
            plain(tests["sentence"]),
            table(header, rows, text=(2, 4, 7)),
            loads if peaks else "",
            tests["how"] if peaks else "",
        )
        if part
    )


def _timings(timings: dict[str, Any] | None, things: str, member: str) -> str:
    if timings is None:
        return ""
    stages: list[dict[str, Any]] = timings["stages"]
    header = ["command"]
    kept = _spread(list(range(len(stages))))
    for stage in (stages[place] for place in kept):
        members = f", {show_count(stage['members'], member)}" if stage["members"] else ""
        where = f"{figures.amount(stage['containers'], things)}{members}"
        header += [f"{where}: filling", "at idle"]
    rows = [
        [
            row["command"],
            *(
                f"{figures.latency(times['p50'])} / {figures.latency(times['p99'])}"
                for place in kept
                for times in (row["stages"][place]["filling"], row["stages"][place]["idle"])
            ),
        ]
        for row in timings["rows"]
    ]
    return table(header, rows, text=(0,))


def _member(run: dict[str, Any]) -> str:
    return facts_of(run["target"]["kind"]).member


def _members(document: dict[str, Any]) -> tuple[str, str]:
    """Return the heading, and the spread of things over members, with each member if they are few."""
    run, spread = document["run"], document["spread"]
    member = _member(run)
    heading = "Placement" if spread else f"{member.capitalize()}s"
    repaired = document["repaired"]
    again = f"Lost and created again: {show_amount(repaired, run['things'])}." if repaired else ""
    told = [plain(spread["sentence"]), _spread_table(spread, run["things"], member)] if spread else []
    few = len(document["members"]) <= MOST_LINES and not document["rally"]
    each = _each_member(document, member) if few or not spread else ""
    return heading, "\n\n".join(part for part in (*told, each, again) if part)


def _spread_table(spread: dict[str, Any], things: str, member: str) -> str:
    rows = [
        [
            str(stage["stage"]),
            *(
                figures.number(stage[name])
                for name in ("things", "hosts", "most", "median", "fewest", "none")
            ),
            figures.share(stage["cv"]),
            figures.share(stage["chance"]),
        ]
        for stage in spread["stages"]
    ]
    header = [
        "stage",
        things,
        f"{member}s",
        "most",
        "median",
        "fewest",
        "with none",
        "variation",
        "by chance",
    ]
    return table(header, rows)


def _agents(document: dict[str, Any]) -> str:
    rows = [
        [
            agent["host"],
            agent["agent"],
            figures.number(agent["times"]),
            figures.seconds(agent["seconds"]) + (", to the end" if agent["down"] else ""),
            figures.clock(agent["first"]),
            figures.number(agent["on_it"]),
            figures.number(agent["in_all"]),
        ]
        for agent in document["agents"][:MOST_LINES]
    ]
    header = ["host", "agent", "times", "for", "first", f"{document['run']['things']} on it", "in all"]
    return table(header, rows, text=(0, 1), left_out=len(document["agents"]) - len(rows))


def _each_member(document: dict[str, Any], name: str) -> str:
    ended = [stage for stage in document["stages"] if stage["end"] is not None]
    holds = facts_of(document["run"]["target"]["kind"]).on_members
    kept = _spread(list(range(len(ended)))) if holds else []
    members: list[dict[str, Any]] = document["members"]
    rows = [
        [
            member["name"],
            *(figures.number(member["at_end"][place]) for place in kept),
            *([figures.number(member["lost"])] if holds else []),
            ", ".join(figures.clock(t) for t in member["led"]) or "–",
            ", ".join(f"{change['status']} {figures.clock(change['t'])}" for change in member["changes"]),
        ]
        for member in members[:MOST_LINES]
    ]
    stages = [f"stage {ended[place]['number']}" for place in kept]
    header = [name, *stages, *(["lost"] if holds else []), "led from", "status changes"]
    return table(header, rows, text=(0, len(header) - 1), left_out=len(members) - len(rows))


def _retries(document: dict[str, Any]) -> str:
    lines = [
        f"{figures.number(retry['count'])} x {retry['operation']}: {retry['kind']}"
        for retry in document["retries"]
    ]
    lines += [
        f"given up: {figures.number(entry['count'])} x {entry['operation']}, {entry['kind']}: {entry['error']}"
        for entry in document["gave_up"]
    ]
    return bullets(lines)


def _growth(document: dict[str, Any], unit: str) -> str:
    parts: list[dict[str, Any]] = document["growth"]
    rows = [
        [
            _load(part),
            figures.number(round(part["from"])),
            figures.number(round(part["to"])),
            figures.seconds(part["seconds"]),
            figures.rate(part["per_second"]),
        ]
        for part in _spread(parts)
    ]
    things = "iterations" if document["rally"] else document["run"]["things"]
    rendered = table(
        [unit, f"{things} from", "to", "within", "per second"], rows, left_out=len(parts) - len(rows)
    )
    sentences = bullets([entry["sentence"] for entry in document["fill"]])
    return section("Growth", "\n\n".join(part for part in (sentences, rendered) if part))


def _cautions(cautions: Sequence[str]) -> str:
    return "Missing or inexact data:\n\n" + bullets(cautions) if cautions else ""


def _highest(row: dict[str, Any]) -> str:
    if not row["highest"]:
        return "–"
    host: str = row["highest"]["host"]
    return host if row["hosts"] > 1 else f"{host} only"


def _resources(resources: dict[str, Any] | None) -> list[str]:
    if resources is None:
        return []
    rows = [
        (row["stands_out"], figure, row)
        for figure in resources["figures"]
        if (figure["chart"] and not figure["always_zero"]) or any(row["stands_out"] for row in figure["rows"])
        for row in figure["rows"]
    ]
    rows.sort(key=lambda row: not row[0])
    led = bool(resources["leader"])
    header = [
        "figure",
        *(["leader"] if led else []),
        "followers" if led else "hosts",
        "most",
        "ratio",
        "highest host",
    ]
    shown = [_resource_row(figure, row, led) for _, figure, row in rows[:MOST_LINES]]
    rendered = table(header, shown, text=(0, len(header) - 1), left_out=len(rows) - len(shown))
    return [
        section("Resource use of the target", rendered),
        section("Resource cost of the load", _costs(resources)),
    ]


def _missing(document: dict[str, Any]) -> list[str]:
    """Return what is not shown about the target, with the reasons: costs, and metrics without data."""
    resources: dict[str, Any] = document["resources"] or {"costs": [], "no_costs": [], "missing": []}
    lines: list[str] = []
    if not document["operation_costs"]:
        lines += [f"cost of one operation: {why}" for why in document["no_operation_costs"]]
    if not resources["costs"]:
        lines += [f"cost of the load: {why}" for why in resources["no_costs"]]
    missing: dict[str, list[str]] = {}
    for entry in resources["missing"]:
        if entry["scraped"]:
            missing.setdefault(entry["why"], []).append(entry["what"])
    lines += [f"{', '.join(what)}: {why}" for why, what in missing.items()]
    unscraped = sum(not entry["scraped"] for entry in resources["missing"])
    if unscraped:
        lines.append(
            f"{show_count(unscraped, 'metric')} {choose(unscraped, 'has', 'have')} no source in this Prometheus"
        )
    return lines


def _resource_row(figure: dict[str, Any], row: dict[str, Any], led: bool) -> list[str]:
    leader, others = row["leader"], row["others"]
    most = [told["max"] for told in (leader, others) if told]
    name = figure["title"] + (f" ({row['part']})" if row["part"] else "")
    return [
        name,
        *([figures.quantity(leader and leader["typical"], figure["unit"])] if led else []),
        figures.quantity(others and others["typical"], figure["unit"]),
        figures.quantity(max(most, default=None), figure["unit"]),
        figures.times(row["ratio"]),
        _highest(row),
    ]


def _costs(resources: dict[str, Any]) -> str:
    costs = resources["costs"]
    lines = [cost["sentence"] for cost in costs[:MOST_LINES]]
    lines += [f"and {len(costs) - MOST_LINES} more"] if len(costs) > MOST_LINES else []
    return bullets(lines)


def _operation_costs(document: dict[str, Any]) -> str:
    """Render what each operation costs all hosts, and its CPU time at each load."""
    lines: list[str] = []
    for cost in document["operation_costs"]:
        if cost["role"] == "all":
            lines.append(cost["sentence"])
            lines += [
                f"at {show_amount(load['size'], document['run']['load_unit'])}: {load['words']} ({load['interval']})"
                for load in cost["loads"]
            ]
    rest = len(lines) - MOST_LINES
    lines = lines[:MOST_LINES] + ([f"and {rest} more"] if rest > 0 else [])
    return bullets(lines)


def _units(units: Sequence[dict[str, Any]]) -> str:
    """Render the units; incomplete ones come first."""
    ordered = sorted(units, key=lambda unit: unit["status"] == "complete")
    rows = [
        [
            unit["name"],
            figures.of(unit["share"], unit["of"], unit["status"]),
            figures.number(unit["cores"]) if unit["cores"] else "–",
            figures.offset(unit["clock_offset"], unit["clock_error"]),
            unit["status"],
            unit["why"],
        ]
        for unit in ordered[:MOST_LINES]
    ]
    header = ["unit", "share", "cores", "clock ahead by", "status", "why"]
    return table(header, rows, text=(0, 4, 5), left_out=len(units) - len(rows))


def _spread(stages: list[_T]) -> list[_T]:
    """Return all stages, or the first, the last and an even selection of those in between."""
    if len(stages) <= _MOST_STAGES:
        return stages
    last = len(stages) - 1
    return [stages[round(place * last / (_MOST_STAGES - 1))] for place in range(_MOST_STAGES)]


def _errors(document: dict[str, Any]) -> str:
    events = document["events"]
    lines = [
        f"{figures.number(error['count'])} x {error['operation']} {error['outcome']}: {error['message']}"
        for error in [*events["errors"], *events["limited"]]
    ]
    if events["connections"]:
        lost = events["connections"]
        lines.append(
            f"{show_count(lost['lost'], 'connection')} lost, {figures.number(lost['again'])} made again during a hold"
        )
    if events["lost"]["count"]:
        lines.insert(0, f"{show_amount(events['lost']['count'], document['run']['things'])} lost")
    return section("Failures", bullets(lines))
