"""Route of what-if simulations: the present jobs under another policy, from now on."""

from datetime import datetime

from fastapi import APIRouter

from punctual.api.context import Context, Submitter
from punctual.api.problems import Refused, answers, within
from punctual.client.schema import WhatIfAnswer, WhatIfJob, WhatIfOutcome, WhatIfRequest
from punctual.request.deadlines import Now
from punctual.request.submission import check_policy
from punctual.sim.what_if import SimulatedEnd, WhatIfFailed, asked

router = APIRouter(tags=["cluster"])


@router.post("/what-if", responses=answers(415))
def what_if(question: WhatIfRequest, context: Context, _: Submitter) -> WhatIfAnswer:
    """Simulate all jobs under another policy and the present one; nothing is changed.

    One question at a time is answered, and then none for as long as that took.
    """
    policy, now = question.policy, context.host.clocks()
    with within("policy"):
        check_policy(policy.name, policy.parameters)
    with context.what_ifs.turn() as wait_s:
        if wait_s:
            raise Refused(429, "another question of this kind is or was just answered", {"Retry-After": str(wait_s)})
        try:
            # CPU time that the simulation under each policy may take.
            told = asked(context.host.run_folder, policy.name, policy.parameters, 5.0)
        except WhatIfFailed as error:
            raise Refused(503, f"there is no answer just now: {error}", {"Retry-After": "5"}) from error
    jobs = [
        WhatIfJob(
            job=job.job,
            deadline=_wall(now, job.deadline_at),
            today=_outcome(job.today, now),
            other=_outcome(job.other, now),
        )
        for job in told.jobs
    ]
    return WhatIfAnswer(since=now.wall_of(told.at), policy=told.policy, other=policy.name, jobs=jobs)


def _outcome(outcome: SimulatedEnd, now: Now) -> WhatIfOutcome:
    return WhatIfOutcome(
        state=outcome.state,
        verdict=outcome.verdict,
        landed=_wall(now, outcome.landed_at),
        cause=outcome.cause,
        unknown=outcome.unknown,
    )


def _wall(now: Now, at: float | None) -> datetime | None:
    return None if at is None else now.wall_of(at)
