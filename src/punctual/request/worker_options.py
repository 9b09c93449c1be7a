"""Parse options about workers."""

import re

from punctual.core.errors import InvalidSpec
from punctual.core.units import check_length
from punctual.request.submission import WorkerRange


def worker_range(
    workers: str | None, gpus: str | None, cores_each: float | None, servers: str | None = None
) -> WorkerRange | None:
    """Return the range of workers in the options; None: the job has no workers.

    Raises
    ------
    InvalidSpec
        Options contradict each other, or one is no range of whole numbers.
    """
    if workers is not None and gpus is not None:
        raise InvalidSpec(
            "a job must count either workers or GPUs", "both `--workers` and `--gpus`", "`punctual run`",
            "With `--gpus` each worker has one GPU: leave `--workers` out.",
        )  # fmt: skip
    if servers is not None and workers is None:
        raise InvalidSpec(
            "`--servers` must go with workers on cores", "`--gpus`" if gpus is not None else "no `--workers`",
            "`punctual run`", "Add for example `--workers 1..4`.", option="servers",
        )  # fmt: skip
    if workers is None and (gpus is None or gpu_frac(gpus)):
        if cores_each is not None:
            raise InvalidSpec(
                "`--cores-per-worker` must go with a number of workers", "none", "`punctual run`",
                "Add for example `--workers 1..4`, or say `--cores`.", option="cores_per_worker",
            )  # fmt: skip
        return None
    option, text = ("--gpus", gpus) if gpus is not None else ("--workers", workers)
    n_least, n_most = _parsed_counts(text or "", option, "; or a part of one GPU, `--gpus 0.5`" * (gpus is not None))
    return WorkerRange(
        n_least=n_least, n_most=n_most, cores_each=cores_each, n_gpus_each=int(gpus is not None),
        servers=None if servers is None else _parsed_counts(servers, "--servers"),
    )  # fmt: skip


def gpu_frac(text: str) -> float:
    """Return the part of one GPU that ``0.5`` means; 0 for a text that is no number between 0 and 1."""
    part = re.fullmatch(r"\s*(0?\.[0-9]+)\s*", text)
    return float(part[1]) if part else 0.0


def _parsed_counts(text: str, option: str, or_else: str = "") -> tuple[int, int]:
    """Parse ``1..4``; or ``4``, the most, with one as the least. `or_else`: the valid alternative."""
    check_length(text, f"`{option}`", "Write the least and the most, as `1..4`.")
    match = re.fullmatch(r"\s*(?:(\d+)\s*\.\.\s*)?(\d+)\s*", text)
    n_least, n_most = (int(match[1] or 1), int(match[2])) if match else (0, 0)
    if not 1 <= n_least <= n_most:
        raise InvalidSpec(
            f"`{option}` must be a range of whole numbers from 1 on", repr(text), f"`{option}`",
            f"Write the least and the most, as `1..4`, or the most alone, as `4`{or_else}.",
            option=option.strip("-"),
        )  # fmt: skip
    return n_least, n_most
