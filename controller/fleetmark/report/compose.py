"""The tables of a run -> the document of its report."""

import statistics
from collections.abc import Sequence

from fleetmark import store
from fleetmark.analyse.summary import Summary, relative
from fleetmark.report import details, evidence, summaries
from fleetmark.report.context import Context, open_context
from fleetmark.report.document import Document, Verdict
from fleetmark.report.figures import duration, moment, parse_moment, ratio
from fleetmark.tables.build import RunTables
from fleetmark.tables.steps import NEVER_BEGAN


def compose(tables: RunTables) -> Document:
    """Put the report together. Raises ResultError on damaged files."""
    run = tables.run
    document, plan = store.read_versioned(run.run_json), store.read_versioned(run.plan_json)
    context = open_context(tables, document, plan)
    sections = [
        *summaries.sections(context),
        *details.sections(context),
        *evidence.sections(context),
    ]
    reasons = _partial_because(context)
    return Document(
        title=str(document["experiment"]),
        description=str(plan.get("description") or ""),
        run_id=run.run_id,
        state=_state(context, reasons),
        partial_because=tuple(reasons),
        facts=tuple(_facts(context)),
        verdicts=tuple(_verdicts(context)),
        sections=tuple(sections),
        legend=context.labels,
        notes=context.notebook.notes,
        footer=f"Made by fleetmark {document.get('fleetmark') or ''} from run {run.run_id}."
        " Every number can be rebuilt from the raw files of the run.",
    )


def _state(context: Context, reasons: Sequence[str]) -> str:
    """The run's own state, unless what lies in its directory says less of it."""
    state = str(context.run_document["state"])
    if context.damage:
        return "damaged"
    return "partial" if state == "complete" and reasons else state


def _partial_because(context: Context) -> list[str]:
    reasons = [str(reason) for reason in context.run_document.get("partial_because") or []]
    # Numbers from changed files are no results: as loud as missing ones.
    reasons += [f"damaged: {d.path}: {d.problem}" for d in context.damage or ()]
    steps = context.tables.rows("steps")
    for trial in context.tables.rows("trials"):
        own = [s for s in steps if s["trial"] == trial["trial"]]
        never = [s["name"] for s in own if s["partial_because"] == NEVER_BEGAN]
        if trial["state"] != "ok" or never:
            text = f"trial {trial['trial']}: {trial['state']}"
            reasons.append(f"{text}; never began: {', '.join(never)}" if never else text)
        for step in own:
            if step["partial"] and step["name"] not in never:
                reasons.append(f"{step['trial']}, step {step['name']}: {step['partial_because']}")
    return list(dict.fromkeys(reasons))


def _facts(context: Context) -> list[tuple[str, str]]:
    run = context.run_document
    started, ended = parse_moment(run.get("started")), parse_moment(run.get("ended"))
    took = (ended - started).total_seconds() if started and ended else None
    trials = context.tables.rows("trials")
    targets = context.plan_document.get("targets", [])
    loads = sum(len(t["load"]) for t in targets)
    servers = dict.fromkeys(str(t["dbms_version"]) for t in trials if t["dbms_version"])
    repeats = max((t["repeat"] for t in trials), default=0)
    return [
        ("Run", context.tables.run.run_id),
        ("Started", moment(run.get("started"))),
        ("Took", duration(took)),
        ("Server", ", ".join(servers) or "none started"),
        (
            "Fleet",
            f"{len(targets)} database {_plural('host', len(targets))},"
            f" {loads} load {_plural('host', loads)}",
        ),
        ("Trials", f"{len(trials)} ({repeats} {_plural('repeat', repeats)})"),
    ]


def _plural(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"


def _verdicts(context: Context) -> list[Verdict]:
    verdicts = []
    steps = context.tables.rows("steps")
    judged = [s for s in steps if s["sla_met"] is not None]
    missed = [s for s in judged if s["sla_met"] is False]
    if judged:
        text = (
            f"SLA missed in {len(missed)} of {len(judged)} query steps"
            if missed
            else f"SLA met in all {len(judged)} query steps"
        )
        verdicts.append(Verdict(text, good=not missed))
    taints = context.tables.rows("taints")
    kinds = ", ".join(dict.fromkeys(t["kind"] for t in taints))
    words = f"{len(taints)} {_plural('taint', len(taints))} ({kinds})" if taints else "No taints"
    verdicts.append(Verdict(words, good=not taints))
    errors = sum(s["errors"] for s in steps)
    if errors:
        verdicts.append(Verdict(f"{errors:,} errors", good=False))
    verdicts.append(_checksums(context))
    for summary in context.summaries:
        verdicts += [Verdict(text) for text in _findings(summary)]
    return verdicts


def _checksums(context: Context) -> Verdict:
    if context.damage is None:
        return Verdict("No checksums yet", good=False)
    damaged = len(context.damage)
    if damaged:
        return Verdict(f"{damaged} {_plural('file', damaged)} damaged", good=False)
    return Verdict("All files as they were stored", good=True)


def _findings(summary: Summary) -> list[str]:
    """How each further row stands to the first, over the steps that count for both."""
    texts = []
    for n, row in enumerate(summary.rows[1:], 1):
        values = []
        for step in summary.measured_steps:
            cells = [summary.get(summary.rows[0], step), summary.get(row, step)]
            if not any(c is None or c.sla_failed or c.partial for c in cells):
                values.append(relative(summary.column(step))[n])
        texts += _finding(row, summary.rows[0], [v for v in values if v is not None])
    return texts


def _finding(row: str, base: str, values: Sequence[float]) -> list[str]:
    if not values:
        return []
    if len(values) == 1:
        return [f"{row}: {ratio(values[0])} times {base} (1 step)"]
    span = f"{ratio(min(values))} to {ratio(max(values))} over {len(values)} steps"
    return [f"{row}: {ratio(statistics.median(values))} times {base} (median; {span})"]
