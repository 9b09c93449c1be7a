"""Start of a service, for `punctual up --detach` and `punctual submit`."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from punctual.cli._errors import EXIT_USER_ERROR
from punctual.core.errors import InvalidSpec
from punctual.daemon.control_client import is_answering
from punctual.daemon.detached import start_detached
from punctual.daemon.host_options import HostOptions
from punctual.daemon.paths import refused_if_unwritable, state_root
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.sharing import service_run

_POLL_INTERVAL_S = 0.1
#: Seconds that a service may take to answer, on a machine whose cores are all in use.
_START_S_MAX = 90.0
#: Bytes shown of the log of a service that did not start.
_TOLD_BYTES = 4000


def log_file() -> Path:
    """Path of the log of services in the background."""
    return state_root().parent / "service.log"


def log_notice() -> str:
    """Return the line that tells a user the log of a service in the background."""
    return f"punctual: what it says is in {log_file()}"


def started_service(options: HostOptions, arguments: Sequence[str] = ()) -> RunFolder:
    """Start a service that outlives this command, with more arguments of `punctual up`; return its run once it answers.

    Raises
    ------
    InvalidSpec
        The service has ended at once, with its reason; or it does not answer.
    """
    command = up_command(options, arguments)
    log = log_file()
    with refused_if_unwritable(log.parent):
        begun_at = log.stat().st_size if log.exists() else 0
        process = start_detached(command, log, os.environ)
    give_up_at = time.monotonic() + _START_S_MAX
    while time.monotonic() < give_up_at:
        has_ended = process.poll() is not None
        run = service_run()
        if run is not None and addresses_of(run) and is_answering(run):
            return run  # also one that another command has started meanwhile
        if has_ended and run is None:  # else it has ended because another one is just starting
            raise _not_started(process.returncode, _written_since(log, begun_at))
        time.sleep(_POLL_INTERVAL_S)
    raise InvalidSpec(
        "a service that was started must answer",
        f"no answer of process {process.pid} within {_START_S_MAX:g} s",
        "`punctual up`",
        f"See what it has written: {log}.",
    )


def record_service(run: RunFolder, addresses: Sequence[str], taken_over: Sequence[str]) -> None:
    """Record the addresses of this process's service, and the jobs that it found."""
    run.record_facts(service={"pid": os.getpid(), "addresses": list(addresses), "taken_over": list(taken_over)})


def addresses_of(run: RunFolder) -> list[str]:
    """Return the addresses of the service that steers `run`; empty: none is recorded yet."""
    return _told_by_service(run, "addresses")


def taken_over_by(run: RunFolder) -> list[str]:
    """Return the jobs that the service which steers `run` found."""
    return _told_by_service(run, "taken_over")


def _told_by_service(run: RunFolder, name: str) -> list[str]:
    service = run.facts().get("service", {})
    return list(service.get(name, [])) if service.get("pid") == run.record().get("pid") else []


def up_command(options: HostOptions, arguments: Sequence[str] = ()) -> Sequence[str]:
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


def _written_since(log: Path, begun_at: int) -> str:
    with log.open("rb") as file:
        n_bytes = os.fstat(file.fileno()).st_size
        file.seek(max(begun_at if begun_at <= n_bytes else 0, n_bytes - _TOLD_BYTES))  # it may have been begun anew
        return file.read().decode("utf-8", "replace").strip()


def _not_started(exit_code: int, written: str) -> InvalidSpec:
    got = f"one that ended at once with status {exit_code}"
    if exit_code == EXIT_USER_ERROR and written:
        got += f", and said:\n{written}"
    return InvalidSpec(
        "a service that was started must go on", got, "`punctual up`", f"See what it has written: {log_file()}."
    )
