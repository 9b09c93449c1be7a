"""Controllers and models by name, looked up once a job needs them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from punctual.core.errors import InvalidSpec
from punctual.core.job import JobSpec
from punctual.core.loss import LossCurve
from punctual.core.protocols import Controller, ConvergenceModel, PerfModel
from punctual.core.recent_messages import Reason
from punctual.core.scheduled_job import ScheduledJob
from punctual.core.speed import RateCurve

P = TypeVar("P")

#: Source of a family's plug-ins: all of them by name; or a function that makes the one of a name, and raises
#: `InvalidSpec` for an unknown name.
Source = Mapping[str, P] | Callable[[str], P]

#: Failure of a job's plug-in: its code, and the exception.
Failure = tuple[str, Exception]


_TEXTS = {
    "controller-failed": "its controller '{name}' failed, so the job runs at its ceiling: {error}",
    "model-failed": "a model that learns from it failed, so nothing more is learned: {error}",
}


def failure_warning(job: ScheduledJob, failure: Failure) -> Reason:
    """Return the warning to a job's user about a plug-in that failed."""
    code, error = failure
    return Reason(code, _TEXTS[code].format(name=job.spec.controller, error=f"{type(error).__name__}: {error}"))


class PlugIns:
    """The plug-ins that jobs name, each made once."""

    def __init__(
        self,
        controllers: Source[Controller[Any]],
        models: Source[PerfModel[Any]],
        convergences: Source[ConvergenceModel[Any]],
    ) -> None:
        self._sources: dict[str, Source[Any]] = {
            "controllers": controllers, "models": models, "convergence models": convergences,
        }  # fmt: skip
        self._made: dict[tuple[str, str], Any] = {}

    def equip(self, job: ScheduledJob) -> tuple[list[Failure], str]:
        """Give a new job its plug-ins.

        Returns
        -------
        The plug-ins that failed, without which the job has to do; and why it cannot run at all, because a name is
        unknown or a plug-in refuses what the job declares: empty if it can.
        """
        failures: list[Failure] = []
        try:
            for code, begin in (("controller-failed", self._begin_steering), ("model-failed", self._begin_learning)):
                try:
                    begin(job)
                except InvalidSpec:
                    raise
                except Exception as error:  # noqa: BLE001 -- a plug-in that fails costs its own job only
                    failures.append((code, error))
        except InvalidSpec as error:
            return [], str(error)
        return failures, ""

    def _begin_steering(self, job: ScheduledJob) -> None:
        name = job.spec.controller
        if name is not None:
            controller = self._find("controllers", name, job.spec)
            job.controller, job.controller_state = controller, controller.init(job.spec)

    def _begin_learning(self, job: ScheduledJob) -> None:
        spec = job.spec
        if spec.model is not None:
            model = self._find("models", spec.model, spec)
            job.curve = RateCurve(model, model.init(spec))
        if spec.goal is not None:
            convergence = self._find("convergence models", spec.convergence, spec)
            job.losses = LossCurve(convergence, spec.goal, convergence.init())

    def restored(self, plain: dict[str, Any]) -> tuple[ScheduledJob, list[Failure]]:
        """Return the record of `ScheduledJob.as_plain` with its plug-ins, and the failures of missing ones."""
        curve, losses = plain["curve"], plain["losses"]
        job = ScheduledJob(**{**plain, "curve": None, "losses": None})
        failures: list[Failure] = []
        if job.ended:
            job.story = None
            return job, failures
        spec = job.spec
        try:
            if not job.is_quarantined:
                job.controller = self._find("controllers", spec.controller, spec)
        except InvalidSpec as error:
            failures.append(("controller-failed", error))
        try:
            if curve is not None:
                job.curve = RateCurve(self._find("models", spec.model, spec), curve[0])
            if losses is not None:
                job.losses = replace(losses, model=self._find("convergence models", spec.convergence, spec))
        except InvalidSpec as error:
            failures.append(("model-failed", error))
        return job, failures

    def _find(self, family: str, name: str | None, spec: JobSpec) -> Any:
        if name is None:
            return None
        plug_in = self._made.get((family, name))
        if plug_in is None:
            plug_in = self._made[family, name] = self._make(family, name, spec)
        return plug_in

    def _make(self, family: str, name: str, spec: JobSpec) -> Any:
        source = self._sources[family]
        try:
            return source[name] if isinstance(source, Mapping) else source(name)
        except InvalidSpec:
            raise
        except Exception as error:
            known = f"Known are: {', '.join(sorted(source)) or 'none'}." if isinstance(source, Mapping) else str(error)
            raise InvalidSpec(
                f"the name must be one of the {family} there are", f"'{name}'", f"job '{spec.id}'", known
            ) from error
