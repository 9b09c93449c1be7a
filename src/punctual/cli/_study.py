"""Run a study from the options of `punctual simulate`, with results on disk and a table on the terminal."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Any

from punctual import registry
from punctual.cli._errors import EXIT_INTERRUPTED
from punctual.cli._policy_table import failure_lines, print_policies
from punctual.cli._recorded import recorded_fields, recorded_lines
from punctual.cli._streams import write_line, write_lines
from punctual.cli._study_page import write_page
from punctual.core.cluster import usual_jobs_at_once
from punctual.core.errors import InvalidSpec
from punctual.daemon.capacity import capacity_here, usable_cores
from punctual.request.json_text import json_text
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
    _check_export(export)
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

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("simulating", total=1.0)

        def tell(progress: StudyProgress) -> None:
            text = f"{progress.n_done} of {progress.n_runs} runs"
            bar.update(line, completed=progress.done_frac, description=text)

        yield tell


@contextmanager
def stopping_where_told(
    show: Callable[[StudyProgress], None] | None,
) -> Iterator[Callable[[StudyProgress], None]]:
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
        write_lines(json_text({**as_fields(result, page), **recorded_fields(result)}, indent=1).split("\n"))
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
    try:
        os.makedirs(name, exist_ok=True)  # noqa: PTH103 -- a `Path` takes no name for the current folder
        with TemporaryFile(dir=name) as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        raise InvalidSpec(
            "results must go into a folder that can be written to", error.strerror or str(error), f"`--out {name}`",
            "Give another folder (`--out DIR`), or free space on its disk.",
        ) from None  # fmt: skip


def _check_export(path: Path | None) -> None:
    if path is None:
        return
    if path.suffix not in _EXPORTS:
        raise InvalidSpec(
            "an export must be a table", f"a name ending in '{path.suffix}'", f"`--export {path}`",
            f"Give a name ending in {', '.join(_EXPORTS)}.",
        )  # fmt: skip
    if not os.access(path.absolute().parent, os.W_OK):
        raise InvalidSpec(
            "an export's folder must be one that can be written to", f"'{path.parent}'", f"`--export {path}`",
            "Make the folder first.",
        )  # fmt: skip


def _save(scenario: Scenario, path: Path) -> None:
    """Write the scenario; its paths are relative to the file's own folder."""
    keys = with_paths(scenario.keys(), lambda text: os.path.relpath(text, path.absolute().parent))
    try:
        path.write_text(toml_of(keys), encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(
            "a scenario must be saved to a file that can be written", error.strerror or str(error),
            f"`--save {path}`", "Give another name, in a folder that exists.",
        ) from None  # fmt: skip
