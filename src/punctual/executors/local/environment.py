"""The environment of a job."""

import math
from collections.abc import Mapping, Sequence

from punctual.channel import JOB_VARIABLE, PAGE_VARIABLE
from punctual.core.ids import JobId
from punctual.core.program import Program
from punctual.executors.local.devices import VISIBLE_VARIABLE


def job_environment(
    program: Program,
    job: JobId,
    ceiling_cores: float,
    page: str | None,
    inherited: Mapping[str, str],
    *,
    is_read: bool,
    devices: Sequence[str] | None = None,
) -> dict[str, str]:
    """Return the environment variables of the job's process.

    Parameters
    ----------
    is_read
        Its output passes through the process that steers it.
    devices
        The GPUs that the job is shown; None: those of this process.

    Notes
    -----
    The number of threads follows the ceiling (that of one worker, where the job is made of them) and not the grant: it
    stays the same for the whole run, and with it the order in which numbers are added up. What training computes must
    not depend on how fast it was let go.
    """
    n_threads = str(max(1, math.ceil(ceiling_cores)))
    chosen = {
        "OMP_NUM_THREADS": n_threads,
        "MKL_NUM_THREADS": n_threads,
        # How many there are to be used, to joblib and to Python from 3.13 on.
        "LOKY_MAX_CPU_COUNT": n_threads,
        "PYTHON_CPU_COUNT": n_threads,
        # A thread that waits by spinning burns the quota that the thread it waits for would need.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    if is_read:
        # Python writes in large pieces to anything but a terminal, and progress would come in jumps.
        chosen["PYTHONUNBUFFERED"] = "1"
    environment = {**chosen, **inherited, **program.environment, JOB_VARIABLE: job}
    environment.pop(PAGE_VARIABLE, None)
    if devices is not None:
        environment[VISIBLE_VARIABLE] = ",".join(devices)
    return environment if page is None else {**environment, PAGE_VARIABLE: page}
