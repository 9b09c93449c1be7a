"""Read the quantities that people write: times, cores, memory, shares, numbers of workers, a loss.

A bare number of seconds or bytes is refused: one scheduler reads it as minutes, the next as seconds; of memory one reads
MB, the next bytes. Memory is counted in powers of 1024, as Slurm, Docker and the makers of memory do: ``4G``, ``4GB`` and
``4GiB`` are the same.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import TypeVar

from punctual.core.errors import InvalidSpec
from punctual.core.loss import LossGoal
from punctual.core.units import DAY_S, HOUR_S, MINUTE_S, UNITS_BYTES

N = TypeVar("N", int, float)

#: Names of a unit -> its seconds. `M` is none of them: elsewhere it means months.
_NAMES_S = {
    "w week weeks": 7 * DAY_S,
    "d day days": DAY_S,
    "h hr hrs hour hours": HOUR_S,
    "m min mins minute minutes": MINUTE_S,
    "s sec secs second seconds": 1,
    "ms millisecond milliseconds": 1e-3,
}
_UNITS_S = {name: seconds for names, seconds in _NAMES_S.items() for name in names.split()}
#: Seconds of the next smaller unit, which a last number without a unit counts: `1h30`, `2m30`.
_NEXT_UNIT_S: dict[float, int] = {DAY_S: HOUR_S, HOUR_S: MINUTE_S, MINUTE_S: 1}
_ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORD_NUMBERS = {word: n for n, word in enumerate(_ONES + _TEENS, 1)} | {
    word: 10 * n for n, word in enumerate(_TENS, 2)
}
_NUMBER_WORDS = re.compile(
    rf"\b(?:({'|'.join(_TENS)})(?:[\s-]({'|'.join(_ONES)}))?|({'|'.join(_TEENS + _ONES)}))\b", re.IGNORECASE
)
#: Shares of a unit in words -> in digits.
_SHARES = (
    (re.compile(r"\bhalf an? (?=[a-z])", re.IGNORECASE), "0.5 "),
    (re.compile(r"\b(?:a )?quarter of an? (?=[a-z])", re.IGNORECASE), "0.25 "),
    (re.compile(r"\b([0-9]+) and a half (?=[a-z])", re.IGNORECASE), r"\1.5 "),
    (re.compile(r"\ban? ([a-z]+) and a half\b", re.IGNORECASE), r"1.5 \1"),
)
_UNITLESS = re.compile(r"[0-9]{2}")
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER}|\ban?\b)\s*([A-Za-z]+)\s*(?:(?:,|\band\b)\s+(?=[0-9a]))?")
#: Slurm's forms `MM:SS`, `HH:MM:SS`, `D-HH:MM:SS`, `D-HH:MM` and `D-HH`; with four numbers Lightning's and Torque's.
_COLONS = re.compile(r"(?:(?:([0-9]+)[-:])?([0-9]{1,3}):)?([0-9]{1,3}):([0-9]{2})")
_DAYS_AND_HOURS = re.compile(r"([0-9]{1,3})-([0-9]{1,2})(?::([0-9]{2}))?")
_ISO_DURATION = re.compile(
    rf"P(?=[0-9T])(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_CORES = re.compile(rf"({_NUMBER}|\.[0-9]+)\s*(?:cores?)?")
_BYTES = re.compile(rf"({_NUMBER})\s*([KMGT])(?:iB?|B)?", re.IGNORECASE)

#: The farthest that an instant of the future may lie ahead: what is further is a slip, and beyond what the clocks can count.
HORIZON_S = 3650 * DAY_S
_TEXT_LENGTH_MAX = 64

_DURATION_REMEDY = "Write for example `90s`, `1h30m`, `1.5h`, `1:30:00` or `2-12:00:00`."
#: For errors about an amount: what it is of, and how to write one.
_OF_CORES = ("a number of cores", "Write for example `2`, `0.5 cores` or the range `0.1..2`.")
_OF_MEMORY = ("an amount of memory", "Write for example `4GiB`, `512M` or the range `4G..16G`.")
_SHARE_REMEDY = "Write `0.1%` or `0.001`."
_GOAL_REMEDY = "Write `--until 'loss<0.1'`."


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRange:
    """Range of a job's number of workers, and the resources of each.

    * `cores_each`: None: an equal part of what there is.
    * `n_gpus_each`: 0, or 1: each worker has a GPU of its own.
    * `servers`: least and most parameter servers beside them; None: there are none.
    """

    n_least: int
    n_most: int
    cores_each: float | None = None
    n_gpus_each: int = 0
    servers: tuple[int, int] | None = None

    @property
    def option(self) -> str:
        """Name of the option of `punctual run` for such workers."""
        return "--gpus" if self.n_gpus_each else "--workers"

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(range(self.n_least, self.n_most + 1))


def parse_duration_s(text: str, where: str = "a length of time") -> float:
    """Return the seconds that `text` means.

    `text`: numbers with units, largest first (``1h30m``, ``1.5 hours``, ``2 days``, ``250ms``; weeks to milliseconds),
    or Slurm's ``MM:SS``, ``HH:MM:SS``, ``D-HH:MM:SS``, or ISO 8601's ``PT1H30M`` (weeks and smaller units), or words:
    ``two hours``, ``half an hour``. `where`: what it is the length of, for errors.

    Raises `InvalidSpec`: when `text` is something else, a bare number included.

    Examples
    --------
    >>> parse_duration_s("1h30m"), parse_duration_s("02:00"), parse_duration_s("1-02:00:00")
    (5400.0, 120.0, 93600.0)
    """
    check_length(text, "a duration", _DURATION_REMEDY)
    seconds = _colons_s(text.strip())
    if seconds is None:
        seconds = _parts_s(in_digits(text.strip()))
    if seconds is None:
        seconds = _iso_s(text.strip())
    if seconds is None or not isfinite(seconds):
        raise InvalidSpec("a duration must be numbers with units", repr(text), where, _DURATION_REMEDY)
    return seconds


def parse_ahead_s(text: str, where: str = "a time from now") -> float:
    """Return the seconds that `text` means, within ten years; raises as `parse_duration_s` does."""
    seconds = parse_duration_s(text, where)
    if seconds > HORIZON_S:
        raise InvalidSpec("a time from now must lie within ten years", repr(text), where, "Give a shorter one (`60s`).")
    return seconds


def in_digits(text: str) -> str:
    """Return `text` with its numbers in digits.

    Examples
    --------
    >>> [in_digits(text) for text in ("two hours", "Twenty-five minutes", "half an hour", "an hour and a half")]
    ['2 hours', '25 minutes', '0.5 hour', '1.5 hour']
    """
    text = _NUMBER_WORDS.sub(
        lambda match: str(sum(_WORD_NUMBERS[word.lower()] for word in match.groups() if word)), " ".join(text.split())
    )
    for share, digits in _SHARES:
        text = share.sub(digits, text)
    return text


def parse_cores(text: str) -> float:
    """Cores that `text` means: ``0.5``, ``0.5 cores``. Raises `InvalidSpec`: when `text` is no number above zero."""
    cores = _cores(text)
    if cores <= 0:
        raise InvalidSpec("cores must be above zero", repr(text), *_OF_CORES)
    return cores


def parse_cores_range(text: str) -> tuple[float | None, float]:
    """Read floor and ceiling in cores from ``0.1..2``; a single value is a ceiling, with the floor None.

    Raises `InvalidSpec`: when a value is no number, the ceiling is zero or the floor lies above it.
    """
    return _least_and_most(text, _cores, parse_cores, *_OF_CORES)


def parse_bytes(text: str) -> int:
    """Read an amount of memory in bytes: ``4GiB``, ``4G``, ``512 MB``.

    Raises `InvalidSpec`: when `text` is no number above zero with a unit.

    Examples
    --------
    >>> parse_bytes("4GiB") == parse_bytes("4G") == parse_bytes("4 GB") == parse_bytes("4096m") == 4 * 2**30
    True
    """
    check_length(text, *_OF_MEMORY)
    match = _BYTES.fullmatch(text.strip())
    if not match:
        raise InvalidSpec("memory must be a number with a unit", repr(text), *_OF_MEMORY)
    n_bytes = float(match[1]) * UNITS_BYTES[match[2].upper()]
    # More than any machine has, and little enough that a JSON number is exact.
    if not 1 <= n_bytes < 1 << 53:
        raise InvalidSpec("memory must be above zero, and less than 8192 TiB", repr(text), *_OF_MEMORY)
    return int(n_bytes)


def parse_bytes_range(text: str) -> tuple[int, int]:
    """Read the least and the most memory from ``4GiB..16GiB``; a single amount is both.

    Raises `InvalidSpec`: when a value is no amount of memory, or the least lies above the most.
    """
    least, most = _least_and_most(text, parse_bytes, parse_bytes, *_OF_MEMORY)
    return most if least is None else least, most


def _least_and_most(
    text: str, read_least: Callable[[str], N], read_most: Callable[[str], N], what: str, remedy: str
) -> tuple[N | None, N]:
    """Return both ends of a range; a single value is the most (None: no least is said)."""
    check_length(text, what, remedy)
    low, dots, high = text.partition("..")
    if not dots:
        return None, read_most(text)
    try:
        least, most = read_least(low), read_most(high)
    except InvalidSpec as error:
        raise InvalidSpec(error.must, repr(text), what, remedy) from None
    if least > most:
        raise InvalidSpec("the least must not lie above the most", repr(text), what, remedy)
    return least, most


def parse_share(text: str) -> float:
    """Parse a share: `0.1%` and `0.001` are the same."""
    check_length(text, "a margin", _SHARE_REMEDY)
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", text)
    if not match:
        raise InvalidSpec("a margin must be a share of the deadline", repr(text), "`--margin`", _SHARE_REMEDY)
    share = float(match[1]) / (100 if match[2] else 1)
    # A job's margin lies below this share of its deadline.
    if share >= 0.5:
        raise InvalidSpec("a margin must be less than half of the deadline", repr(text), "`--margin`", _SHARE_REMEDY)
    return share


def parse_loss_goal(text: str) -> LossGoal:
    """Parse `loss<0.1`."""
    check_length(text, "a goal", _GOAL_REMEDY)
    match = re.fullmatch(r"\s*loss\s*<=?\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", text)
    if not match or not isfinite(float(match[1])):
        raise InvalidSpec("a goal must be a loss to fall to", repr(text), "`--until`", _GOAL_REMEDY)
    return LossGoal(target=float(match[1]))


def worker_range(
    workers: str | None, gpus: str | None, cores_each: float | None, servers: str | None = None
) -> WorkerRange | None:
    """Return the range of workers in the options; None: the job has no workers.

    Raises `InvalidSpec`: they contradict each other, or one is no range of whole numbers.
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
    if workers is None and (gpus is None or parse_gpu_frac(gpus)):
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


def parse_gpu_frac(text: str) -> float:
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


def check_length(text: str, what: str, remedy: str) -> None:
    """Raise `InvalidSpec` for a text so long that it cannot be meant: reading one may take long."""
    if len(text) > _TEXT_LENGTH_MAX:
        must = f"{what} must be written in at most {_TEXT_LENGTH_MAX} characters"
        raise InvalidSpec(must, f"{len(text)} characters", what, remedy)


def _colons_s(text: str) -> float | None:
    colons, days_and_hours = _COLONS.fullmatch(text), _DAYS_AND_HOURS.fullmatch(text)
    if colons is not None:
        days, hours, minutes, seconds = (int(part) if part else None for part in colons.groups())
    elif days_and_hours is not None:
        days, hours, minutes = (int(part) for part in days_and_hours.groups("0"))
        seconds = 0
    else:
        return None
    # Only the first number may pass the next unit: `90:00` is an hour and a half, `1:90:00` is a slip.
    sound = (seconds or 0) < 60 and (hours is None or (minutes or 0) < 60) and (days is None or (hours or 0) < 24)
    if not sound:
        return None
    return float((days or 0) * DAY_S + (hours or 0) * HOUR_S + (minutes or 0) * MINUTE_S + (seconds or 0))


def _parts_s(text: str) -> float | None:
    total_s, previous_s, end = 0.0, inf, 0
    for part in _PART.finditer(text):
        unit_s = inf if part[2] == "M" else _UNITS_S.get(part[2].lower(), inf)
        if part.start() != end or unit_s >= previous_s:
            return None
        total_s += (1.0 if part[1].startswith("a") else float(part[1])) * unit_s
        previous_s, end = unit_s, part.end()
    next_s = _NEXT_UNIT_S.get(previous_s)
    if next_s is not None and text[end - 1].isalpha() and _UNITLESS.fullmatch(text, end):
        return total_s + float(text[end:]) * next_s
    return total_s if text and end == len(text) else None


def _iso_s(text: str) -> float | None:
    parts = _ISO_DURATION.fullmatch(text)
    if parts is None:
        return None
    units_s = (7 * DAY_S, DAY_S, HOUR_S, MINUTE_S, 1)
    return sum(float(part) * unit_s for part, unit_s in zip(parts.groups("0"), units_s, strict=True))


def _cores(text: str) -> float:
    check_length(text, *_OF_CORES)
    found = _CORES.fullmatch(text.strip())
    cores = float(found[1]) if found else inf
    if not isfinite(cores):
        raise InvalidSpec("cores must be a number", repr(text), *_OF_CORES)
    return cores
