"""`punctual up`: a service that runs the jobs it is given; `punctual daemon`: the same in a terminal, to its last job."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from punctual.api.daemon_process import EXIT_REPLACED, page_link, serve_daemon
from punctual.api.http_options import NO_HTTP, HttpOptions, notice_without_http
from punctual.api.notifier import NotifyOptions
from punctual.api.server import DEFAULT_ADDRESS
from punctual.cli._options import JobsAtOnce, policy_names, taking
from punctual.cli._streams import write_error, write_line, write_out, write_record
from punctual.core.errors import InvalidSpec
from punctual.core.status import JobStatus
from punctual.core.units import counted
from punctual.daemon.daemon import Daemon
from punctual.daemon.daemon_request import DaemonRequest, Ready
from punctual.daemon.host_options import ACTUATORS, ENGINES, SHARING_POLICY, HostOptions
from punctual.daemon.joining import log_notice, start_daemon
from punctual.daemon.paths import HOME_VARIABLE, owner_token_file, service_root
from punctual.daemon.runs import open_jobs
from punctual.daemon.sweeping import sweep
from punctual.executors.cluster.poll_schedule import LOST_AFTER_S
from punctual.request.job_options import RequestBody
from punctual.request.quantities import parse_duration_s

_POLICY = typer.Option(
    help="Policy by which jobs share the machine, see `punctual plugins policies`.", autocompletion=policy_names
)
_ACTUATOR = typer.Option(help=f"Enforcement of grants: {', '.join(ACTUATORS)}.")
_SECTIONS = {
    "Jobs": {"policy": _POLICY, "actuator": _ACTUATOR, "jobs_at_once": JobsAtOnce},
    "Nodes of a cluster": {
        "engine": typer.Option(help=f"Place where jobs run: {', '.join(ENGINES)}."),
        "address": typer.Option(help="The Ray cluster: auto, HOST:PORT or ray://HOST:PORT.", show_default=False),
        "cluster": typer.Option(
            metavar="FILE.toml",
            help="Nodes of the Ray cluster to use, with limits, in tables `[[cluster]]`. [default: all]",
        ),
        "autoscale": typer.Option(
            min=0,
            metavar="N",
            help="Ask Ray's autoscaler for nodes, up to N in all, while jobs wait for room. [default: never]",
            show_default=False,
        ),
        "node_lost_after": typer.Option(
            help="A node of a cluster that is silent for so long is lost; its jobs start elsewhere."
        ),
        "allow_unauthenticated_ray": typer.Option(
            "--allow-unauthenticated-ray",
            help="Use a Ray cluster that asks for no token: anybody who reaches it can run programs as its user.",
        ),
    },
    "HTTP and notices": {
        "listen": typer.Option(
            metavar="HOST:PORT|none",
            help=f"Address for HTTP; `*:PORT`: all addresses. [default: {DEFAULT_ADDRESS}, or a free port]",
        ),
        "tls_cert": typer.Option(help="Certificate chain (PEM), for access from other machines."),
        "tls_key": typer.Option(help="Its private key (PEM)."),
        "host_name": typer.Option(metavar="NAME", help="A name in its URL, beside those in the certificate."),
        "allow_plain": typer.Option(
            "--allow-plain", help="Listen for other machines without TLS: tokens can be read on the way."
        ),
        "otel": typer.Option(
            "--otel", help="Send traces and metrics to OpenTelemetry (OTEL_EXPORTER_OTLP_ENDPOINT, ...)."
        ),
        "notify_url": typer.Option(
            metavar="URL", help="POST a JSON notice there when a job is at risk, late, stalled, failed, or landed."
        ),
        "notify_command": typer.Option(
            metavar="COMMAND", help="Run this for each such notice, with its JSON on standard input."
        ),
    },
    "Options": {
        "detach": typer.Option("--detach", help="Run in the background; return once it answers."),
        "systemd": typer.Option("--systemd", help="Print a unit for systemd, and exit."),
        "as_json": typer.Option("--json", help="One JSON object about the service."),
    },
}
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


class UpOptions(RequestBody):
    """Options of `punctual up`."""

    policy: str = SHARING_POLICY
    actuator: str = "auto"
    jobs_at_once: int | None = None
    engine: str = "local"
    address: str = ""
    cluster: Path | None = None
    autoscale: int = 0
    node_lost_after: str = f"{LOST_AFTER_S:g}s"
    allow_unauthenticated_ray: bool = False
    listen: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    host_name: list[str] = Field(default_factory=list)
    allow_plain: bool = False
    otel: bool = False
    notify_url: str | None = None
    notify_command: str | None = None
    detach: bool = False
    systemd: bool = False
    as_json: bool = False

    def host(self) -> HostOptions:
        """Return the options of a host; raises `InvalidSpec` if one is impossible."""
        options = HostOptions(
            shared=True,
            lost_after_s=parse_duration_s(self.node_lost_after, "`--node-lost-after`"),
            cluster="" if self.cluster is None else str(self.cluster.absolute()),
            **{name: getattr(self, name) for name in _OF_HOST},
        )
        options.check()
        return options

    def http(self) -> HttpOptions:
        """Return the options of HTTP; raises `InvalidSpec` if one is impossible."""
        options = HttpOptions(
            address=self.listen,
            tls_cert=None if self.tls_cert is None else str(self.tls_cert.absolute()),
            tls_key=None if self.tls_key is None else str(self.tls_key.absolute()),
            host_names=self.host_name,
            allow_plain=self.allow_plain,
            otel=self.otel,
        )
        options.check()
        return options

    def words(self) -> Iterator[str]:
        """Yield the service's options that differ from their defaults, as words of a command line for any folder."""
        usual = self.given({})
        for name, value in self:
            if name not in _SECTIONS["Options"] and value != getattr(usual, name):
                for each in value if isinstance(value, list) else [value]:
                    yield f"--{name.replace('_', '-')}"
                    if each is not True:
                        yield str(each.absolute() if isinstance(each, Path) else each)


#: Options that have the same name in `HostOptions`.
_OF_HOST = ("actuator", "policy", "engine", "address", "autoscale", "allow_unauthenticated_ray", "jobs_at_once")


@taking(UpOptions, _SECTIONS)
def up(given: UpOptions) -> None:
    """Run a service. It trains what `punctual submit` and `punctual run` bring, and stays when that has ended."""
    options, http, notify = given.host(), given.http(), NotifyOptions(given.notify_url, given.notify_command)
    notify.check()
    notify = notify.at_home()
    if given.systemd:
        write_out(unit(given.model_copy(update={"notify_command": notify.command})))
        write_line(f"Save this as {_UNIT_FILE}, then: systemctl --user enable --now trainings", err=True)
        return
    notify.hand_on()
    request = DaemonRequest(options=options, stays=True, http=asdict(http))
    if given.detach:
        _tell(start_daemon(request), as_json=given.as_json)
        write_error(*([] if given.listen is not None else notice_without_http()), log_notice())
        return
    raise typer.Exit(serve(request, as_json=given.as_json))


def unit(given: UpOptions) -> str:
    """Return systemd's unit file for a service of this user that starts at login."""
    home = os.environ.get(HOME_VARIABLE)
    variable = f"{HOME_VARIABLE}={Path(home).absolute()}".replace("%", "%%") if home else ""
    environment = f"Environment={shlex.quote(variable)}\n" if home else ""
    # systemd puts variables into the arguments, not into the program's path; and its own names into both.
    arguments = ["-P", "-m", "punctual", "up", *(word.replace("$", "$$") for word in given.words())]
    command = shlex.join([sys.executable, *arguments]).replace("%", "%%")
    return _UNIT.format(command=command, environment=environment)


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
        told = {"pid": ready.pid, "addresses": list(addresses), "token_file": token_file, "taken_over": list(jobs)}
        write_record("service", told)
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


def daemon(
    policy: Annotated[str, _POLICY] = SHARING_POLICY,
    actuator: Annotated[str, _ACTUATOR] = "auto",
    jobs_at_once: JobsAtOnce = None,
    stay: Annotated[bool, typer.Option("--stay", help="Stay when the last job has ended, as `punctual up`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object about the daemon.")] = False,
) -> None:
    """Run the daemon in this terminal, until its last job has ended. Other commands start it by themselves."""
    options = HostOptions(actuator=actuator, policy=policy, shared=True, jobs_at_once=jobs_at_once)
    options.check()
    http = {"address": NO_HTTP} if stay else None
    raise typer.Exit(serve(DaemonRequest(options=options, stays=stay, http=http), as_json=as_json))
