"""Position of a training in steps and in the script; a new worker and a resumed training continue there."""

from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from punctual.tracking.losses import N_ARRIVED

#: Place of an evaluation in the script: before the first loop; in a loop's body, before and after the step is
#: taken; after a loop.
Place = Literal["before", "top", "bottom", "after"]


@dataclass(slots=True)
class Position:
    """Steps done, and the results of evaluations that a worker which starts from here would have to repeat.

    A worker starts at the begin of the script and goes on in the loop of `epoch`, after `i_step` steps of it. The
    evaluations that it comes to on its way there have been made, by all workers together: it takes their results.

    * `n_steps`: steps done since the training began.
    * `results`: results by place, in the order of making: those before the first loop, and those since the last step.
    * `losses`: the last ones reported, as many as tell whether the training has come to its goal: all workers tell it
      alike.
    * `finished`: whether the script has said that the training is done.
    """

    n_steps: int = 0
    epoch: int = 0
    i_step: int = 0
    results: dict[str, list[Any]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    finished: bool = False

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Position":
        """Make a position from values; missing ones are epoch 0, step 0, and no losses."""
        results = {place: list(made) for place, made in values["results"].items()}
        losses = list(values.get("losses", []))
        finished = values.get("finished", False)
        return cls(values["n_steps"], values.get("epoch", 0), values.get("i_step", 0), results, losses, finished)

    def values(self) -> dict[str, Any]:
        """Return the position as JSON values."""
        results = {place: list(made) for place, made in self.results.items()}
        return {
            "n_steps": self.n_steps, "epoch": self.epoch, "i_step": self.i_step, "results": results,
            "losses": list(self.losses), "finished": self.finished,
        }  # fmt: skip

    def note(self, loss: float) -> None:
        """Note a reported loss; NaN and infinity do not count."""
        if isfinite(loss):
            self.losses = [*self.losses, loss][-N_ARRIVED:]

    def advance(self) -> None:
        """Note the end of a step."""
        self.n_steps += 1
        self.i_step += 1
        self.results = {place: made for place, made in self.results.items() if place == "before"}
