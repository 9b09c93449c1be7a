"""Identifiers. Distinct types, so that a job cannot be passed where a node is meant."""

from typing import Literal, NamedTuple, NewType

JobId = NewType("JobId", str)
NodeId = NewType("NodeId", str)

#: *tick*: read the job and ask its controller. *deadline*: its deadline passes. *retry*: say a failed command again, or launch a failed job again.
#: *leave*: a job that only has nodes with notice saves and moves. *answer*: a command that has no answer by now is lost. *plan*: ask
#: the policy. *plan-answer*: a plan that has not come by now is lost. *demands*: ask the policy if it does not know all demands yet.
#: *machines*: give back a machine that has not been taken away as it was said.
TimerKind = Literal["tick", "deadline", "retry", "leave", "answer", "plan", "plan-answer", "demands", "machines"]


class Timer(NamedTuple):
    """Name of a timer; setting it again replaces its instant. `job` is empty for timers of the whole cluster."""

    kind: TimerKind
    job: JobId = JobId("")
