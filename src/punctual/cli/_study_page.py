"""Page of a study: one self-contained file."""

import html
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from punctual.cli._errors import refused_if_failing
from punctual.core.units import counted
from punctual.history.decisions import Gaps, by_code
from punctual.sim.drawing.figures import gantt, money, overview
from punctual.sim.measures import Estimate, Measure, best_of
from punctual.sim.result import Result
from punctual.sim.stored import StoredRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Drawn in this colour, and replaced by the page's own text colour, so that one drawing suits light and dark pages.
_INK = "#123456"


def write_page(result: Result, path: Path) -> None:
    """Write the report of `result`, which has runs, to `path`. Raises `InvalidSpec`: the file cannot be written."""
    remedy = "Give another folder with `--out`; with the same one, nothing is run again."
    with refused_if_failing("a report must be a file that can be written", f"'{path}'", remedy):
        path.write_text(page(result), encoding="utf-8")


def page(result: Result) -> str:
    """Return the report as HTML."""
    # A Gantt chart is an image of some 50 kB: of more policies than this only the first ones get one.
    charts = [
        _svg(gantt(runs[0], _INK), f"Jobs over time under {label}")
        for label, runs in list(result.by_policy.items())[:12]
    ]
    billed = [runs[0] for runs in result.by_policy.values() if runs[0].facts.get("bill")]
    title = "Policies compared" if len(result.by_policy) > 1 else html.escape(next(iter(result.by_policy)))
    return _PAGE.format(
        title=title,
        paragraph=html.escape(in_words(result)),
        table=_wide(_table(result), "Measures by policy"),
        overview=_svg(overview(result.by_policy, _INK), "Completion times and deadlines by policy"),
        charts="\n".join(charts),
        money="\n".join(["<h2>Money</h2>", *map(_money, billed)] if billed else []),
        decisions="\n".join(_decisions(label, runs) for label, runs in result.by_policy.items()),
        scenario=html.escape(result.scenario.toml()),
    )


def in_words(result: Result) -> str:
    """Describe a study in a sentence or two."""
    n_jobs = max(run.jobs.height for run in result.runs)
    n_seeds = len({run.seed for run in result.runs})
    seeds = "one seed" if n_seeds == 1 else f"{n_seeds} seeds"
    interval = "" if n_seeds == 1 else f" {_interval(result)}"
    trace = result.scenario.trace
    generated = f"generator {trace.generator.text}" if trace.generator else "the scenario"
    source = Path(trace.file).name if trace.file else generated
    bad = f" {result.n_bad_rows:,} rows of it made no sense and were left out." if result.n_bad_rows else ""
    return f"{counted(n_jobs, 'job', ',')} of {source}, {seeds}.{bad}{_not_landed(result)}{interval}"


def _interval(result: Result) -> str:
    """Describe what the seeds of a study say about chance."""
    widths = [estimate.half_width for each in result.measures for estimate in result.estimates(each) if estimate]
    if any(widths):
        return "After ±: half the width of a 95 % interval over seeds."
    return "All seeds give the same numbers."


def _not_landed(result: Result) -> str:
    """Say under which policies some jobs have no completion time; empty: under none."""
    short = []
    for label, runs in result.by_policy.items():
        n_landed, n_jobs = (sum(run.summary[name] or 0.0 for run in runs) for name in ("n_finished", "n_jobs"))
        if n_landed < n_jobs:
            short.append(f"{label} {n_landed:,.0f} of {n_jobs:,.0f}")
    return f" Completion times are of the jobs that landed: {', '.join(short)}." if short else ""


def cell(measure: Measure, estimate: Estimate | None) -> str:
    """Format an estimate: ``93.1 % ± 0.4 %``; without an interval if there is none, or the values of all seeds are equal."""
    if estimate is None:
        return "-"
    if not estimate.half_width:
        return measure.shown(estimate.mean)
    return f"{measure.shown(estimate.mean)} ± {measure.shown(estimate.half_width)}"


def _wide(content: str, label: str) -> str:
    """Wrap what a small screen has no room for: it is scrolled alone, by keys too."""
    return f'<div class="wide" tabindex="0" role="region" aria-label="{html.escape(label)}">{content}</div>'


def _svg(figure: "Figure", label: str) -> str:
    """Return the drawing as a part of a page, in the colour of its text."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "punctual"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    drawing = text[text.index("<svg") + 4 :].replace(_INK, "currentColor")
    return _wide(f'<svg role="img" aria-label="{html.escape(label)}"{drawing}', label)


def _table(result: Result) -> str:
    columns = [(measure, result.estimates(measure)) for measure in result.measures]
    best = {measure.name: best_of(measure, estimates) for measure, estimates in columns}
    head = "".join(f"<th>{html.escape(measure.heading)}</th>" for measure, _ in columns)
    rows = [
        _row(label, [(cell(one, estimates[i_row]), i_row in best[one.name]) for one, estimates in columns])
        for i_row, label in enumerate(result.by_policy)
    ]
    return f"<table><thead><tr><th>policy</th>{head}</tr></thead>\n<tbody>\n{''.join(rows)}</tbody></table>"


def _row(label: str, cells: Sequence[tuple[str, bool]]) -> str:
    columns = "".join(f"<td{' class=best' if is_best else ''}>{html.escape(text)}</td>" for text, is_best in cells)
    return f"<tr><th>{html.escape(label)}</th>{columns}</tr>\n"


def _listed(label: str, rows: Iterable[tuple[str, str, str]]) -> str:
    """Return a table of names, numbers and texts."""
    cells = [
        f"<tr><th>{html.escape(name)}</th><td>{number}</td><td class=text>{html.escape(text)}</td></tr>\n"
        for name, number, text in rows
    ]
    return _wide(f"<table>{''.join(cells)}</table>", label)


def _money(run: StoredRun) -> str:
    """Show what each pool and each job of a run has cost, over time and in all."""
    bill = run.facts["bill"]
    told = {each["job"]: each["text"] for each in bill["told"]}
    rows = [("all machines", sum(bill["by_pool"].values()), "")]
    rows += [(f"pool {pool}", usd, "") for pool, usd in sorted(bill["by_pool"].items())]
    dearest = sorted(bill["by_job"].items(), key=lambda each: (-each[1], each[0]))[:50]
    rows += [(f"job {job}", usd, told.get(job, "")) for job, usd in dearest]
    rows += [("for no job", bill["unused_usd"], "")] if bill["unused_usd"] else []
    label = f"Dollars under {run.policy}"
    table = _listed(label, [(name, f"${usd:,.2f}", text) for name, usd, text in rows])
    drawing = _svg(money(run, _INK), f"{label} over time") if bill["course"]["by_pool"] else ""
    return f"<h3>{html.escape(run.policy)}</h3>\n{drawing}\n{table}"


def _decisions(label: str, runs: Sequence[StoredRun]) -> str:
    """Show a policy's decisions on the first seed with their reasons, and the proven bounds of its plans."""
    run = runs[0]
    found = by_code(run.decisions.select("kind", "code", "text").iter_rows())
    table = _listed(f"Decisions of {label}", [(kind, f"{n:,}", text) for kind, _, n, text in found])
    return f"<h3>{html.escape(label)}</h3>\n<p>{_proven(run.gaps)}</p>\n{table}"


def _proven(gaps: Gaps) -> str:
    """Describe the proven quality of the plans."""
    if gaps.mean_frac is None or gaps.max_frac is None:
        return f"{gaps.n_plans:,} plans; this policy proves no bound."
    return (
        f"{gaps.n_plans:,} plans, {gaps.n_proven:,} of them with a proven bound on their objective: "
        f"{100 * gaps.mean_frac:.3g} % below it on average, {100 * gaps.max_frac:.3g} % at most."
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --page: #ffffff; --ink: #222222; --rule: #dddddd; --best: #0a7d3c; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --page: #16181d; --ink: #e4e6ea; --rule: #3a3f47; --best: #5ad18b; }} }}
body {{ background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 78rem; padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; }}
h2 {{ font-size: 1.1rem; }}
svg {{ width: 100%; min-width: 44rem; height: auto; font-family: system-ui, sans-serif; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--rule); text-align: right; padding: 0.25rem 0 0.25rem 1.2rem; white-space: nowrap; }}
th {{ font-weight: normal; opacity: 0.7; }}
td.text {{ text-align: left; white-space: normal; }}
tbody th {{ text-align: left; opacity: 1; padding-left: 0; }}
.best {{ color: var(--best); font-weight: 600; }}
pre {{ overflow-x: auto; border: 1px solid var(--rule); padding: 0.8rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{paragraph} The best of a column is in green.</p>
{table}
{overview}
<h2>Jobs over time</h2>
<p>Jobs in order of submission from top to bottom, time from left to right. A pixel shows how its jobs spent that
stretch of time: holding devices, or waiting for them; the fainter, the fewer of them were there.</p>
{charts}
{money}
<h2>Decisions</h2>
<p>What was decided on the first seed, how often, and the first time's reason. Every decision about one job:
<code>punctual why JOB --study DIR</code>.</p>
{decisions}
<h2>What was run</h2>
<pre>{scenario}</pre>
</body>
</html>
"""
