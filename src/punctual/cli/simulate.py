"""`punctual simulate`: jobs under several policies on a simulated cluster."""

from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._recorded import journal_named, period_keys
from punctual.cli._study import carry_out, scenario_of


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
