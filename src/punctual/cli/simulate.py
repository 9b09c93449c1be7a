"""`punctual simulate`: jobs under several policies on a simulated cluster, with results on disk and a table on the terminal."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Annotated, Any

import typer

from punctual import registry
from punctual.cli._errors import EXIT_INTERRUPTED, check_can_write, refused_if_failing
from punctual.cli._policy_table import failure_lines, print_policies
from punctual.cli._recorded import journal_named, period_keys, recorded_fields, recorded_lines
from punctual.cli._streams import write_json, write_line, write_lines
from punctual.cli._study_page import write_page
from punctual.core.cluster import usual_jobs_at_once
from punctual.core.errors import InvalidSpec
from punctual.daemon.capacity import capacity_here, usable_cores
from punctual.sim import parts
from punctual.sim.choice import value_of
from punctual.sim.recording import is_journal
from punctual.sim.result import Result
from punctual.sim.scenario import (
    DEFAULT_GENERATOR,
    Scenario,
    has_declared_jobs,
    keys_in,
    table_of,
    toml_of,
    trace_source,
    with_paths,
)
from punctual.sim.study import Study, StudyProgress
from punctual.sim.traces.synthetic import FAMILY


def simulate(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.toml", help="The study as a file; options override its keys.")
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FILE|RUN|generator:NAME", help="The jobs. [default: 200 from the generator poisson]"),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="A live run's jobs since `18:00`, or `2h` ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="A live run's jobs before then.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="16x8:V100+4x4:T4", help="Nodes x devices, and their kind. [default: 4x8]")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:KEY=VALUE,...]", help="Give it several times to compare. [default: a usual few]"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(metavar="N", help="Number of seeds, from 0 on. [default: 3]")] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="The first N jobs only.")] = None,
    load: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Stretch the arrivals to this share of the cluster's capacity."),
    ] = None,
    deadlines: Annotated[
        str | None,
        typer.Option(
            metavar="RULE", help="Deadlines by a rule. [default: uniform:1.2,4 for generated jobs, else the trace's]"
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="rigid, elastic, measured, adaptive-batch, parameter-server or layered. [default: rigid]",
        ),
    ] = None,
    controller: Annotated[
        str | None, typer.Option(metavar="NAME", help="Steer each job by this controller. [default: by none]")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other key, as physics.resize_s=30.")
    ] = None,
    out: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of results; finished runs are reused.")
    ] = "simulation",
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Write the scenario that these options make.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE.csv|.parquet|.json", help="Write every job of every run.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", help="Runs at a time. [default: one for each core]")
    ] = None,
    report: Annotated[bool, typer.Option(help="Write DIR/report.html.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Run policies on the same simulated jobs, and compare them."""
    trace, period = (None, {}) if trace is None else journal_named(trace)
    given = {
        "trace": trace, "cluster": cluster, "policies": policy or None, "seeds": seeds, "trace.jobs": jobs,
        "trace.load": load, "deadlines": deadlines, "scaling": scaling, "controller": controller,
    }  # fmt: skip
    keys = {key: value for key, value in given.items() if value is not None} | period
    keys |= period_keys(trace, from_, until)
    study, notices = scenario_of(scenario, keys, settings or ())
    raise typer.Exit(
        carry_out(study, notices, out, save=save, export=export, n_processes=processes, report=report, as_json=as_json)
    )


#: Deadlines where nothing is said: without any, the table of a tool for deadlines would say nothing of them.
USUAL_DEADLINES = "uniform:1.2,4"

#: Policies compared by default: the plain order, one that is good at completion times, one at deadlines, and one
#: that plans for both.
USUAL_POLICIES = ("fifo", "shortest-remaining", "earliest-deadline", "promises-first")

_EXPORTS = (".csv", ".parquet", ".json")


def carry_out(
    scenario: Scenario,
    notices: Iterable[str],
    out: str,
    *,
    save: Path | None,
    export: Path | None,
    n_processes: int | None,
    report: bool,
    as_json: bool,
) -> int:
    """Simulate `scenario`, show the results as the options say, and return the exit status.

    * `notices`: messages to show once the scenario is known to be valid.
    * `n_processes`: runs at a time; None: one for each core.
    """
    if export is not None:
        check_can_write(export, f"`--export {export}`", "an export", "a table", _EXPORTS)
    if save is not None:
        _save(scenario, save)
    folder = Path(out)
    study = Study(scenario, folder)
    n_at_once = _n_processes(n_processes)
    _make_folder(out)
    write_lines(notices, err=True)
    try:
        with _bar(shown=not as_json) as show, stopping_where_told(show) as tell:
            result = study.run(n_processes=n_at_once, tell=tell)
    except KeyboardInterrupt:
        write_lines(["", f"stopped; what is finished is in '{folder}' and is not run again"], err=True)
        return EXIT_INTERRUPTED
    return _conclude(result, folder, export, report=report, as_json=as_json)


def scenario_of(file: Path | None, given: Mapping[str, Any], settings: Iterable[str]) -> tuple[Scenario, list[str]]:
    """Return the scenario of the file with the options' keys over its own, and notices of default choices.

    * `file`: a scenario; None: all keys are given.
    * `given`: keys and values; a dot leads into a section.
    * `settings`: more keys and values as text, ``KEY=VALUE``.

    Raises `InvalidSpec`: the keys make no scenario.
    """
    keys = keys_in(file) if file is not None else {}
    for path, value in [*given.items(), *map(_setting, settings)]:
        keys = _with(keys, path, value)
    chosen, notices = _completed(keys, is_in_file=file is not None)
    scenario = Scenario.of(chosen, f"'{file}'" if file else "the options")
    kinds = {choice.name: parts.kind("policies", choice.name) for choice in scenario.policies}
    deaf = [name for name, kind in kinds.items() if not hasattr(kind, "bought_deadline_at")]
    if deaf and any("budget_usd" in job for job in scenario.job):
        notices.append(f"only `least-cost` heeds budgets: {', '.join(deaf)} may spend more")
    return scenario, notices


def _completed(keys: Mapping[str, Any], *, is_in_file: bool) -> tuple[dict[str, Any], list[str]]:
    """Return `keys` completed by defaults, and notices of these choices."""
    chosen, notices = dict(keys), list[str]()
    if has_declared_jobs(keys) and "cluster" not in keys:
        capacity = capacity_here()
        here = {
            "cores": capacity.cores,
            "gpus": int(capacity.gpus),
            "memory_gib": capacity.memory_bytes / 2**30 or None,
            "jobs_at_once": usual_jobs_at_once(capacity.cores),
        }
        chosen["cluster"] = [here]
        notices.append(f"no `--cluster` was given: the jobs run on one machine with {capacity}")
    if "policies" not in keys and not _is_recorded(keys):
        chosen["policies"] = list(USUAL_POLICIES)
        notices.append(f"no `--policy` was given: {', '.join(USUAL_POLICIES)} are compared")
    if "deadlines" not in keys and not is_in_file and not has_declared_jobs(keys) and _draws_no_deadlines(keys):
        chosen["deadlines"] = USUAL_DEADLINES
        notices.append(f"no `--deadlines` was given: each is 1.2 to 4 times what its job takes ({USUAL_DEADLINES})")
    return chosen, notices


def _is_recorded(keys: Mapping[str, Any]) -> bool:
    """Whether the trace is a live journal, whose policy is compared with itself."""
    trace = keys.get("trace")
    return is_journal(Path(str(trace.get("file") if isinstance(trace, Mapping) else trace)))


def _draws_no_deadlines(keys: Mapping[str, Any]) -> bool:
    """Whether jobs come from a generator without a parameter for deadlines."""
    trace = keys.get("trace", {})
    source = trace_source(trace) if isinstance(trace, str) else trace
    if not isinstance(source, Mapping) or "file" in source:
        return False
    generator = source.get("generator", DEFAULT_GENERATOR)
    name = generator.get("name") if isinstance(generator, Mapping) else str(generator).partition(":")[0]
    known = registry.names(FAMILY)
    return name in known and not any("deadline" in parameter for parameter in registry.parameters(FAMILY, name))


def _setting(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not (path and equals):
        raise InvalidSpec("`--set` must be a key and a value", f"'{text}'", "`--set`", "Write `physics.resize_s=30`.")
    return path.strip(), value_of(value.strip())


def _with(keys: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    if not rest:
        if name == "trace" and isinstance(value, str):
            source = trace_source(value)
            # Declared jobs have a rule of scaling of their own, which goes and comes with them.
            is_declared = has_declared_jobs(keys) or has_declared_jobs({name: source})
            keys = {key: kept for key, kept in keys.items() if key != "job" and not (is_declared and key == "scaling")}
            return {**keys, name: {**_without_source(keys.get(name)), **source}}
        return {**keys, name: value}
    inner = keys.get(name, {})
    if isinstance(inner, str):
        inner = trace_source(inner) if name == "trace" else table_of(inner)
    section = inner if isinstance(inner, Mapping) else {"name": inner}
    return {**keys, name: _with(section, rest, value)}


def _without_source(trace: Any) -> dict[str, Any]:
    """Return the trace section without its source, for another source of jobs."""
    kept = trace if isinstance(trace, Mapping) else {}
    return {key: value for key, value in kept.items() if key not in ("file", "generator")}


def _n_processes(given: int | None) -> int:
    if given is None:
        return max(1, int(usable_cores()))
    if given < 1:
        raise InvalidSpec("`--processes` must be above zero", str(given), "`--processes`", "Leave it out, or give 1.")
    return given


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[StudyProgress], None] | None]:
    """Show a progress bar with the time left, on standard error and only on a terminal."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    so_far = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    left = (TextColumn("left:"), TimeRemainingColumn())
    with Bar(*so_far, *left, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("simulating", total=1.0)

        def tell(progress: StudyProgress) -> None:
            text = f"{progress.n_done} of {progress.n_runs} runs"
            bar.update(line, completed=progress.done_frac, description=text)

        yield tell


@contextmanager
def stopping_where_told(show: Callable[[StudyProgress], None] | None) -> Iterator[Callable[[StudyProgress], None]]:
    """End a study on Ctrl-C at its next report of progress, or at once on a second Ctrl-C.

    An exception at any other place may come up in a function of a library that drops it, and the study would go on.
    """
    is_asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_asked
        if is_asked:
            raise KeyboardInterrupt
        is_asked = True

    def tell(progress: StudyProgress) -> None:
        if is_asked:
            raise KeyboardInterrupt
        if show is not None:
            show(progress)

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, for a job in the background
        yield tell
        return
    signal.signal(signal.SIGINT, ask)
    try:
        yield tell
    finally:
        signal.signal(signal.SIGINT, before)


def _conclude(result: Result, out: Path, export: Path | None, *, report: bool, as_json: bool) -> int:
    _save(result.scenario, out / "scenario.toml")
    if result.runs and export is not None:
        export_jobs(result, export)
    page = out / "report.html" if result.runs and report else None
    if page is not None:
        write_page(result, page)
    if as_json:
        write_json({**as_fields(result, page), **recorded_fields(result)}, indent=1)
    elif result.runs:
        print_policies(result)
        write_lines(recorded_lines(result))
        if page is not None:
            write_line(f"report: {page}")
    write_lines(failure_lines(result), err=True)
    return 1 if result.failures else 0


def as_fields(result: Result, page: Path | None) -> dict[str, Any]:
    """Encode the result as plain fields."""
    return {
        "scenario": result.scenario.keys(),
        "policies": result.summary.to_dicts() if result.runs else [],
        "runs": [
            {
                "policy": run.policy,
                "seed": run.seed,
                "key": run.key,
                "cost": run.facts["cost"],
                "summary": run.summary,
                **({"bill": run.facts["bill"]} if "bill" in run.facts else {}),
            }
            for run in result.runs
        ],
        "failures": [{"policy": one.policy, "seed": one.seed, "what": one.what} for one in result.failures],
        "report": str(page) if page else None,
    }


def export_jobs(result: Result, path: Path) -> None:
    """Write every job of every run as a table in the format of the file's name."""
    if path.suffix == ".csv":
        result.jobs.write_csv(path)
    elif path.suffix == ".parquet":
        result.jobs.write_parquet(path)
    else:
        result.jobs.write_json(path)


def _make_folder(name: str) -> None:
    """Make the folder for results, before anything is computed.

    Raises `InvalidSpec`: the folder has no name, or cannot be made or written to.
    """
    remedy = "Give another folder (`--out DIR`), or free space on its disk."
    with refused_if_failing("results must go into a folder that can be written to", f"`--out {name}`", remedy):
        os.makedirs(name, exist_ok=True)  # noqa: PTH103 -- a `Path` takes no name for the current folder
        with TemporaryFile(dir=name) as file:
            file.write(b"x")
            file.flush()


def _save(scenario: Scenario, path: Path) -> None:
    """Write the scenario; its paths are relative to the file's own folder."""
    keys = with_paths(scenario.keys(), lambda text: os.path.relpath(text, path.absolute().parent))
    must = "a scenario must be saved to a file that can be written"
    with refused_if_failing(must, f"`--save {path}`", "Give another name, in a folder that exists."):
        path.write_text(toml_of(keys), encoding="utf-8")
