"""An expression of the user's own, by which progress is read."""

import re
from dataclasses import dataclass

from punctual.core.errors import InvalidSpec
from punctual.progress_text.mentions import Mention, Role, Unit

#: The pattern for reading without an expression.
AUTO = "auto"

_NAMES = ("step", "total", "epoch", "epochs")


@dataclass(frozen=True, slots=True)
class Groups:
    """Numbers of the groups of an expression; None for a group that it does not have."""

    step: int | None
    total: int | None
    epoch: int | None
    epochs: int | None

    @classmethod
    def of(cls, pattern: str) -> "Groups":
        """Find the groups by their names; without names the first is the step and the second the total.

        Raises
        ------
        InvalidSpec
            `pattern` is no regular expression, or has no group for a step or an epoch.
        """
        try:
            compiled = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise _invalid(f"{pattern[:200]!r} ({error})") from None
        names = compiled.groupindex
        if not compiled.groups:
            raise _invalid(f"{pattern!r}, which has none")
        named = {name: names.get(name) for name in _NAMES}
        if not any(named.values()):
            named |= {"step": 1, "total": 2 if compiled.groups > 1 else None}
        if named["step"] is None and named["epoch"] is None:
            raise _invalid(f"{pattern!r}, whose groups are {', '.join(map(repr, names))}")
        return cls(**named)

    @property
    def in_order(self) -> tuple[int, ...]:
        """Numbers of the groups that the expression has."""
        return tuple(i_group for i_group in (self.step, self.total, self.epoch, self.epochs) if i_group is not None)

    @property
    def may_tell_total(self) -> bool:
        """Whether a line that matches may have a total."""
        return self.total is not None or self.epochs is not None

    def mentions(self, texts: tuple[str | None, ...]) -> tuple[Mention, ...]:
        """Return the counts of a match, given the texts of the groups `in_order`; a text that is no number counts nothing."""
        by_group = dict(zip(self.in_order, map(_number, texts), strict=True))
        step, total, epoch, epochs = (
            by_group.get(i_group or 0) for i_group in (self.step, self.total, self.epoch, self.epochs)
        )
        mentions = []
        if epoch is not None:
            mentions.append(_mention(Unit.EPOCH, epoch, epochs))
        if step is not None:
            mentions.append(_mention(Unit.BATCH if self.epoch is not None else Unit.STEP, step, total))
        return tuple(mentions)


def _mention(unit: Unit, step: int, total: int | None) -> Mention:
    return Mention(
        template="",
        unit=unit,
        role=Role.TRAINING,
        step=step,
        total=total,
        is_own=True,
    )


def _number(text: str | None) -> int | None:
    digits = (text or "").replace(",", "").replace("_", "")
    return int(digits) if digits.isdecimal() and len(digits) <= 18 else None


def _invalid(got: str) -> InvalidSpec:
    return InvalidSpec(
        "the progress pattern must be a regular expression with a group for the step, or for the epoch",
        got,
        "`--progress-regex`",
        r"Write for example 'step (?P<step>\d+)/(?P<total>\d+)', or `auto`; try it on a log: `punctual read FILE`.",
    )
