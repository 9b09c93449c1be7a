"""Jobs made of workers: from what a user writes to what one worker holds, and what changes of them have cost."""

import re
from dataclasses import dataclass
from typing import Any

from punctual.cli._words import short
from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.runtime.capacity import FLOOR_CORES
from punctual.wire import WorkerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerWishes:
    """How many workers a job may have, and what each is to hold.

    Attributes
    ----------
    option
        The option that asked for them, ``--workers`` or ``--gpus``.
    cores_each
        None: an equal part of what there is.
    """

    option: str
    n_least: int
    n_most: int
    cores_each: float | None = None

    @property
    def n_gpus_each(self) -> int:
        return int(self.option == "--gpus")

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(range(self.n_least, self.n_most + 1))


def worker_wishes(workers: str | None, gpus: str | None, cores_each: float | None) -> WorkerWishes | None:
    """What the options say; None: the job is not made of workers.

    Raises
    ------
    InvalidSpec
        They contradict each other, or one is no range of whole numbers.
    """
    if workers is not None and gpus is not None:
        raise InvalidSpec(
            "a job must count either workers or GPUs", "both `--workers` and `--gpus`", "`punctual run`",
            "With `--gpus` each worker has one GPU: leave `--workers` out.",
        )  # fmt: skip
    if workers is None and gpus is None:
        if cores_each is not None:
            raise InvalidSpec(
                "`--cores-per-worker` must go with a number of workers", "none", "`punctual run`",
                "Add for example `--workers 1..4`, or say `--cores`.",
            )  # fmt: skip
        return None
    option, text = ("--gpus", gpus) if gpus is not None else ("--workers", workers)
    n_least, n_most = _parsed_counts(text or "", option)
    return WorkerWishes(option=option, n_least=n_least, n_most=n_most, cores_each=cores_each)


def _parsed_counts(text: str, option: str) -> tuple[int, int]:
    """``1..4``; or ``4``, which is the most and leaves one as the least."""
    found = re.fullmatch(r"\s*(?:(\d+)\s*\.\.\s*)?(\d+)\s*", text)
    n_least, n_most = (int(found[1] or 1), int(found[2])) if found else (0, 0)
    if not 1 <= n_least <= n_most:
        raise InvalidSpec(
            f"`{option}` must be a range of whole numbers from 1 on", repr(text), f"`{option}`",
            "Write the least and the most, as `1..4`, or the most alone, as `4`.",
        )  # fmt: skip
    return n_least, n_most


def worker_in(wishes: WorkerWishes, capacity: Resources) -> Resources:
    """What one worker holds, on a machine with `capacity`.

    Raises
    ------
    InvalidSpec
        The most workers there may be do not fit.
    """
    if wishes.n_gpus_each * wishes.n_most > capacity.gpus:
        n_gpus = capacity.gpus
        raise InvalidSpec(
            "`--gpus` must not ask for more than there are", f"{wishes.n_most} GPUs",
            f"this machine, of which this process may use {n_gpus}",
            f"Lower the number (`--gpus {n_gpus}`)." if n_gpus else "Train on cores: `--workers 1..4`.",
        )  # fmt: skip
    cores_each = wishes.cores_each or max(FLOOR_CORES, capacity.cores / wishes.n_most)
    worker = Resources(cores_each, wishes.n_gpus_each)
    if not (worker * wishes.n_most).fits_in(capacity):
        raise InvalidSpec(
            "the most workers must fit in what there is", f"{wishes.n_most} workers of {cores_each:g} cores",
            f"this machine, of which this process may use {capacity.cores:g} cores",
            "Lower their number, or `--cores-per-worker`.",
        )  # fmt: skip
    return worker


def worker_fields(status: WorkerStatus | None) -> dict[str, Any] | None:
    """What became of the workers, in plain fields; None: the job had none, or no agent."""
    if status is None or not status.agent_pid:
        return None
    return {
        "n_resizes": status.n_resizes,
        "longest_stop_s": status.longest_stop_ns / 1e9,
        "n_steps_redone": status.n_steps_redone,
        "n_workers_lost": status.n_workers_lost,
    }


def told_of(status: WorkerStatus | None) -> str:
    """The same as a sentence with a blank before it; empty if nothing has happened."""
    if status is None or not status.longest_stop_ns:
        return ""
    lost = f", {status.n_workers_lost} lost and {status.n_steps_redone} steps done again" * (status.n_workers_lost > 0)
    stop_s = status.longest_stop_ns / 1e9
    return f" Its workers changed {status.n_resizes} times{lost}; training stood still for {short(stop_s)} at most."
