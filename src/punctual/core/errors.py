"""The two kinds of exception the core raises; everything else is a value or an event."""

from collections.abc import Sequence


class InvalidSpec(ValueError):
    """What a user or a file said cannot be used.

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
        What the user can do about it, as a sentence.
    """

    def __init__(self, must: str, got: str, where: str, remedy: str) -> None:
        super().__init__(f"{must}: got {got} for {where}. {remedy}")
        self.must = must
        self.got = got
        self.where = where
        self.remedy = remedy


class InvariantBroken(AssertionError):
    """A bug of ours, or of a plug-in; carries the last messages about the job, oldest first."""

    def __init__(self, what: str, story: Sequence[object] = ()) -> None:
        lines = "\n".join(f"  {message}" for message in story)
        super().__init__(f"{what}\nLast messages:\n{lines}" if lines else what)
        self.what = what
        self.story = tuple(story)
