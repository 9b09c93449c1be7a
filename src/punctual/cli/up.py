"""`punctual up`: a service that runs the jobs it is given."""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from punctual.api.daemon_process import EXIT_REPLACED, page_link, serve_daemon
from punctual.api.http_options import HttpOptions, notice_without_http
from punctual.api.notifier import NotifyOptions
from punctual.api.server import DEFAULT_ADDRESS
from punctual.cli._completion import policy_names
from punctual.cli._options import JobsAtOnce
from punctual.cli._streams import write_error, write_line, write_out
from punctual.core.errors import InvalidSpec
from punctual.core.status import JobStatus
from punctual.core.units import counted
from punctual.daemon.daemon import Daemon
from punctual.daemon.daemon_request import DaemonRequest, Ready
from punctual.daemon.host_options import ACTUATORS, ENGINES, SHARING_POLICY, Engine, HostOptions
from punctual.daemon.joining import log_notice, start_daemon
from punctual.daemon.paths import HOME_VARIABLE, owner_token_file, service_root
from punctual.daemon.runs import open_jobs
from punctual.daemon.sweeping import sweep
from punctual.executors.cluster.poll_schedule import LOST_AFTER_S
from punctual.request.json_text import json_text
from punctual.request.quantities import parse_duration_s

Policy = Annotated[
    str,
    typer.Option(
        help="Policy by which jobs share the machine, see `punctual plugins policies`.", autocompletion=policy_names
    ),
]
Address = Annotated[str, typer.Option(help="The Ray cluster: auto, HOST:PORT or ray://HOST:PORT.", show_default=False)]
ClusterFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.toml",
        help="Nodes of the Ray cluster to use, with limits, in tables `[[cluster]]`. [default: all]",
        show_default=False,
    ),
]
Autoscale = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Ask Ray's autoscaler for nodes, up to N in all, while jobs wait for room. [default: never]",
        show_default=False,
    ),
]
NodeLostAfter = Annotated[
    str, typer.Option(help="A node of a cluster that is silent for so long is lost; its jobs start elsewhere.")
]
AllowUnauthenticatedRay = Annotated[
    bool,
    typer.Option(
        "--allow-unauthenticated-ray",
        help="Use a Ray cluster that asks for no token: anybody who reaches it can run programs as its user.",
    ),
]
Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT|none",
        help=f"Address for HTTP; `*:PORT`: all addresses. [default: {DEFAULT_ADDRESS}, or a free port]",
        show_default=False,
    ),
]
HostName = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A name in its URL, beside those in the certificate.", show_default=False),
]
AllowPlain = Annotated[
    bool, typer.Option("--allow-plain", help="Listen for other machines without TLS: tokens can be read on the way.")
]
Otel = Annotated[
    bool, typer.Option("--otel", help="Send traces and metrics to OpenTelemetry (OTEL_EXPORTER_OTLP_ENDPOINT, ...).")
]
NotifyUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="POST a JSON notice there when a job is at risk, late, stalled, failed, or landed."
    ),
]
NotifyCommand = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="Run this for each such notice, with its JSON on standard input."),
]
_UNIT = """\
[Unit]
Description=Punctual: trainings on their deadlines

[Service]
Type=notify
ExecStart={command}
{environment}Restart=on-failure
# Jobs survive the service, which takes them over when it is started again.
KillMode=process

[Install]
WantedBy=default.target
"""
_UNIT_FILE = "~/.config/systemd/user/trainings.service"


def up(
    policy: Policy = SHARING_POLICY,
    actuator: Annotated[str, typer.Option(help=f"Enforcement of grants: {', '.join(ACTUATORS)}.")] = "auto",
    jobs_at_once: JobsAtOnce = None,
    engine: Annotated[str, typer.Option(help=f"Place where jobs run: {', '.join(ENGINES)}.")] = "local",
    address: Address = "",
    cluster: ClusterFile = None,
    autoscale: Autoscale = 0,
    node_lost_after: NodeLostAfter = f"{LOST_AFTER_S:g}s",
    allow_unauthenticated_ray: AllowUnauthenticatedRay = False,
    listen: Listen = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain (PEM), for access from other machines.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    host_name: HostName = None,
    allow_plain: AllowPlain = False,
    otel: Otel = False,
    notify_url: NotifyUrl = None,
    notify_command: NotifyCommand = None,
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background; return once it answers.")] = False,
    systemd: Annotated[bool, typer.Option("--systemd", help="Print a unit for systemd, and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object about the service.")] = False,
) -> None:
    """Run a service. It trains what `punctual submit` and `punctual run` bring, and stays when that has ended."""
    options = HostOptions(
        actuator=actuator,
        policy=policy,
        shared=True,
        engine=cast(Engine, engine),
        address=address,
        lost_after_s=parse_duration_s(node_lost_after, "`--node-lost-after`"),
        cluster="" if cluster is None else str(cluster.absolute()),
        autoscale=autoscale,
        allow_unauthenticated_ray=allow_unauthenticated_ray,
        jobs_at_once=jobs_at_once,
    )
    options.check()
    http = HttpOptions(
        address=listen,
        tls_cert=None if tls_cert is None else str(tls_cert.absolute()),
        tls_key=None if tls_key is None else str(tls_key.absolute()),
        host_names=host_name or (),
        allow_plain=allow_plain,
        otel=otel,
    )
    http.check()
    notify = NotifyOptions(notify_url, notify_command)
    notify.check()
    notify = notify.at_home()
    if systemd:
        write_out(unit(options, http, notify))
        write_line(f"Save this as {_UNIT_FILE}, then: systemctl --user enable --now trainings", err=True)
        return
    notify.hand_on()
    request = DaemonRequest(options=options, stays=True, http=asdict(http))
    if detach:
        _tell(start_daemon(request), as_json=as_json)
        write_error(*([] if listen is not None else notice_without_http()), log_notice())
        return
    raise typer.Exit(serve(request, as_json=as_json))


def unit(options: HostOptions, http: HttpOptions, notify: NotifyOptions = NotifyOptions()) -> str:  # noqa: B008
    """Return systemd's unit file for a service of this user that starts at login."""
    home = os.environ.get(HOME_VARIABLE)
    variable = f"{HOME_VARIABLE}={Path(home).absolute()}".replace("%", "%%") if home else ""
    environment = f"Environment={shlex.quote(variable)}\n" if home else ""
    program, *arguments = _command(options, [*http.arguments(), *notify.arguments()])
    # systemd puts variables into the arguments, not into the program's path; and its own names into both.
    command = shlex.join([program, *(word.replace("$", "$$") for word in arguments)]).replace("%", "%%")
    return _UNIT.format(command=command, environment=environment)


def _command(options: HostOptions, arguments: Sequence[str] = ()) -> Sequence[str]:
    """Return the command line of a service, valid in any folder."""
    chosen = ["--policy", options.policy, "--actuator", options.actuator]
    chosen += ["--jobs-at-once", str(options.jobs_at_once)] if options.jobs_at_once else []
    if options.engine != "local":
        chosen += ["--engine", options.engine, "--node-lost-after", f"{options.lost_after_s:g}s"]
        chosen += ["--address", options.address] if options.address else []
        chosen += ["--cluster", options.cluster] if options.cluster else []
        chosen += ["--autoscale", str(options.autoscale)] if options.autoscale else []
        chosen += ["--allow-unauthenticated-ray"] if options.allow_unauthenticated_ray else []
    return [sys.executable, "-P", "-m", "punctual", "up", *chosen, *arguments]


def serve(request: DaemonRequest, *, as_json: bool) -> int:
    """Be the daemon in this terminal; return the exit status."""
    sweep()

    def tell(ready: Ready, daemon: Daemon) -> None:
        if daemon.other is not None:
            write_error(f"punctual: a daemon runs already, process {ready.pid}")
            return
        _tell(ready, as_json=as_json)
        _tell_of_others(daemon)

    status, daemon = serve_daemon(request, tell)
    if status == EXIT_REPLACED:
        write_error(
            "punctual: this process was stopped, and another one steers the jobs now. Start it again: punctual up"
        )
        return status
    if daemon.other is not None or daemon.has_ended:
        return status
    why = "" if daemon.received is None else f" ({signal.Signals(daemon.received).name})"
    run = daemon.host.run_folder
    is_local = HostOptions.of(run.facts()).engine == "local"
    left = _left(daemon.left, is_alone=not run.is_followed(), is_local=is_local)
    write_error(f"punctual: the service has ended{why}. {left}")
    return status


def _left(jobs: Sequence[JobStatus], *, is_alone: bool, is_local: bool) -> str:
    """Describe the fate of the open jobs."""
    if not jobs:
        return "No job was left."
    if is_alone and not is_local:
        return (
            f"{counted(len(jobs), 'job')} left: they go on for a while on their nodes, and then wait, after "
            "a checkpoint, for the next `punctual up`."
        )
    n_paused = sum(status.state == "paused" for status in jobs)
    paused = f" ({n_paused} paused)" if n_paused else ""
    how = (
        "at full speed, and nobody steers them until `punctual up`"
        if is_alone
        else "steered by a daemon that a command which waits for one starts"
    )
    return f"{counted(len(jobs), 'job')}{paused} left as with `punctual down --jobs continue`: they go on, {how}."


def _tell(ready: Ready, *, as_json: bool) -> None:
    addresses, jobs = ready.addresses, ready.taken_over
    has_tokens = any(address.startswith(("http:", "https:")) for address in addresses)
    token_file = str(owner_token_file(service_root())) if has_tokens else None
    if as_json:
        told = {
            "type": "service",
            "pid": ready.pid,
            "addresses": list(addresses),
            "token_file": token_file,
            "taken_over": list(jobs),
        }
        write_out(json_text(told) + "\n")
        return
    lines = [
        f"the daemon runs, process {ready.pid}, and listens at {', '.join(addresses)}",
        *([] if token_file is None else [f"the owner's token is in {token_file}"]),
        *([] if token_file is None or not sys.stderr.isatty() else _page_line(addresses, Path(token_file))),
        "submit a job: punctual submit --deadline 1h -- python train.py",
        *([f"took over {', '.join(jobs)}"] if jobs else []),
    ]
    write_error(*(f"punctual: {line}" for line in lines))


def _page_line(addresses: Sequence[str], token_file: Path) -> list[str]:
    """Return the page's address with the owner's token: for a terminal, since others may read a log."""
    try:
        url = page_link(addresses, token_file)
    except InvalidSpec:  # the file was removed: the page asks for a token
        url = next(address for address in addresses if address.startswith(("http:", "https:")))
    return [f"see all jobs in a browser: {url}"]


def _tell_of_others(daemon: Daemon) -> None:
    """Report jobs of other runs that are still not steered."""
    for job in open_jobs():
        if job.run != daemon.host.run_folder and job.steering == "unsteered":
            write_error(f"punctual: job {job.title} is of another run, and not steered: punctual attach {job.title}")
