"""The two kinds of exception the core raises; everything else is a value or an event."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from math import inf
from typing import Any, TypeVar

T = TypeVar("T")
V = TypeVar("V")


class InvalidSpec(ValueError):
    """A user's or a file's specification that cannot be used.

    The message has four parts: what must hold, what was got, which object, what to do.

    Parameters
    ----------
    must
        The condition that does not hold, as a clause: ``"`deadline` must be later than now"``.
    got
        The value found, with its unit.
    where
        The object it was found on: ``"job 'resnet-7'"``.
    remedy
        The user's remedy, as a sentence.
    option
        The option of a job that it is about, as a file of jobs writes it: ``cores_per_worker``; None: not one alone.
    others
        Other errors of the same request.
    """

    def __init__(
        self,
        must: str,
        got: str,
        where: str,
        remedy: str,
        *,
        option: str | None = None,
        others: Sequence["InvalidSpec"] = (),
    ) -> None:
        super().__init__(f"{must}: got {got} for {where}. {remedy}")
        self.must = must
        self.got = got
        self.where = where
        self.remedy = remedy
        self.option = option
        self.others = tuple(others)

    def all(self) -> tuple["InvalidSpec", ...]:
        """Return the error and the other errors of the same request."""
        return (self, *self.others)

    def as_fields(self) -> dict[str, Any]:
        """Return the error as JSON values, for another process."""
        own = {name: getattr(self, name) for name in ("must", "got", "where", "remedy", "option")}
        return {**own, "others": [other.as_fields() for other in self.others]}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "InvalidSpec":
        """Return the error whose `as_fields` are `fields`."""
        return cls(**{**fields, "others": [cls.from_fields(other) for other in fields.get("others", ())]})


class OptionChecks:
    """Check the options of one request, and report all its errors at once.

    An option that is wrong counts as one that was not given in what is checked after it.
    """

    def __init__(self) -> None:
        self._errors: list[InvalidSpec] = []

    def read(self, option: str, read: Callable[[V], T], value: V | None, default: T) -> T:
        """Return `read(value)`, or `default` if the value is None (not given) or invalid."""
        if value is not None:
            with self.of(option):
                return read(value)
        return default

    def made(self, make: Callable[[], T], option: str | None = None) -> T | None:
        """Return `make()`, which reads several options, or None if it refused them. `option`: as for `of`."""
        try:
            return make()
        except InvalidSpec as error:
            self._note(error, option)
            return None

    @contextmanager
    def of(self, option: str | None) -> Iterator[None]:
        """Attribute errors raised within to `option`, unless the error names an option itself."""
        try:
            yield
        except InvalidSpec as error:
            self._note(error, option)

    def done(self) -> None:
        """Raise `InvalidSpec` if a check failed; report one error for each option, and equal errors once."""
        first: dict[str, InvalidSpec] = {}
        for error in self._errors:
            first.setdefault(error.option or str(error), error)
        told = list(first.values())
        if told:
            for error in told:
                error.others = ()
            told[0].others = tuple(told[1:])
            raise told[0]

    def _note(self, caught: InvalidSpec, option: str | None) -> None:
        for error in caught.all():
            error.option = error.option or option
            self._errors.append(error)


def did_you_mean(word: str, known: Iterable[str], least_similarity: float = 0.6) -> str:
    """Return a sentence that suggests the nearest word, with a space after it; empty if no word is near."""
    close = get_close_matches(word, list(known), n=1, cutoff=least_similarity)
    return f"Did you mean `{close[0]}`? " if close else ""


def check_above_zero(where: str, **amounts: float) -> None:
    """Refuse parameters that are not finite and above zero; `InvalidSpec` names the first of them."""
    for name, amount in amounts.items():
        if not 0 < amount < inf:
            raise _wrong(name, "finite and above zero", amount, where, "a positive number")


def check_not_negative(where: str, **amounts: float) -> None:
    """Refuse parameters that are not finite and at least zero; `InvalidSpec` names the first of them."""
    for name, amount in amounts.items():
        if not 0 <= amount < inf:
            raise _wrong(name, "finite and not negative", amount, where, "0 or more")


def check_share(where: str, **amounts: float) -> None:
    """Refuse parameters outside [0, 1]; `InvalidSpec` names the first of them."""
    for name, amount in amounts.items():
        if not 0 <= amount <= 1:
            raise _wrong(name, "from 0 to 1", amount, where, "a share, as 0.5")


def check_fraction(where: str, **amounts: float) -> None:
    """Refuse parameters outside [0, 1); `InvalidSpec` names the first of them."""
    for name, amount in amounts.items():
        if not 0 <= amount < 1:
            raise _wrong(name, "from 0 to below 1", amount, where, "a share, as 0.01")


def _wrong(name: str, must: str, got: float, where: str, give: str) -> InvalidSpec:
    return InvalidSpec(f"`{name}` must be {must}", repr(got), where, f"Give {give}.")


class InvariantBroken(AssertionError):
    """A bug in Punctual or in a plug-in; carries the last messages about the job, oldest first."""

    def __init__(self, what: str, story: Sequence[object] = ()) -> None:
        lines = "\n".join(f"  {message}" for message in story)
        super().__init__(f"{what}\nLast messages:\n{lines}" if lines else what)
        self.what = what
        self.story = tuple(story)
