"""Handler of the control requests of this user's other processes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import inf
from typing import Any

from punctual.core.ids import JobId
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.daemon.control_socket import FDS
from punctual.daemon.host import Host
from punctual.daemon.quotes import told
from punctual.daemon.status_reader import standing
from punctual.executors.local.output import Streams
from punctual.history.judge import NO_WAIT, Wait
from punctual.request.deadlines import Now
from punctual.request.spec_change import NO_DEADLINE, SpecChange
from punctual.request.submission import Submission
from punctual.request.submission_json import decode_submission


class ControlHandler:
    """Answers requests, JSON objects with a `verb`; each call has a thread of its own.

    ============ =================== ================================================================================
    verb         with                answer
    ============ =================== ================================================================================
    `status`     `jobs`, or all      `jobs`: how each stands
    `change`     `job`, `change`,    what is declared then: `job`, `weight`, `floor_cores`, `ceiling_cores`, `workers`
                 `when`              (least and most), `deadline_s`, `deadline_wall`, `left_s`
    `stop`       `job`, `cause`,     `job`
                 `interrupts`
    `pause`      `job`, `cause`      `job`
    `resume`     `job`               `job`
    `policy`     `policy`,           `policy`, `parameters`, `before`; asked without them no `before`
                 `parameters`
    `drain`      `node`, or empty    `node`
                 for the only one;
                 `in_s`, null: it
                 stays
    `submit`     `jobs`, `streams`   nothing, once the journal has them
    `capacity`                       `node`: the most that one job can have; `together`: what workers can have on all
                                     nodes, null where there is one
    `quote`      `job` or            see `punctual.daemon.quotes.told`
                 `submission`;
                 `when`, `cores`
    `leave`      `only_without_jobs` nothing; the daemon then leaves its jobs to another process, or ends if it waits for a
                                     first job
    `page`       `job`, or none      `url`: the page's address, with a token
    ============ =================== ================================================================================

    Parameters
    ----------
    facts
        Returns facts that do not change while a job runs.
    budget
        Returns the resources that all jobs share; called once for an answer about any number of them.
    submit
        Submits jobs, all or none; gets the descriptor of the first one's standard input, which it may duplicate, too.
    capacity
        Returns the most that one job can have, and that its workers can have on all nodes; None: there is one node.
    leave
        Makes the host leave its jobs to another process; returns at once.
    page
        Returns the address of the page, with a token; raises `InvalidSpec` if it cannot be served.
    settle
        Returns once the journal has what was changed; raises `InvalidSpec` if it cannot.
    """

    def __init__(
        self,
        host: Host,
        facts: Callable[[JobId], Mapping[str, Any]],
        budget: Callable[[], Mapping[str, Any]],
        submit: Callable[[Sequence[Submission], Streams, int | None], None],
        capacity: Callable[[], tuple[Resources, Resources | None]],
        leave: Callable[..., None],
        settle: Callable[[], None] = lambda: None,
        page: Callable[[str | None], str] = lambda _: "",
    ) -> None:
        self._host = host
        self._facts, self._budget = facts, budget
        self._submit, self._capacity = submit, capacity
        self._leave, self._page = leave, page
        self._settle = settle

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to `request`; raises `InvalidSpec` for a user's mistake, `ValueError` for a program's."""
        match request:
            case {"verb": "status"}:
                wanted = request.get("jobs")
                told = [status for status in self._host.jobs() if wanted is None or status.id in wanted]
                now, budget = self._host.clocks(), self._budget()
                waits = self._host.waits(now.at)
                return {"jobs": [self._standing(status, now, waits.get(status.id, NO_WAIT), budget) for status in told]}
            case {"verb": "policy"}:
                return self._policy(request)
            case {"verb": "drain", "node": str(name), "in_s": None | int() | float() as in_s}:
                drained = self._host.undrain(name) if in_s is None else self._host.drain(name, float(in_s))
                self._settle()
                return {"node": drained}
            case {"verb": "submit", "jobs": list(jobs), "streams": dict(streams)}:
                submissions = [decode_submission(job) for job in jobs]
                self._submit(submissions, Streams.from_fields(streams), next(iter(request.get(FDS, ())), None))
                return {}
            case {"verb": "capacity"}:
                node, together = self._capacity()
                return {"node": asdict(node), "together": None if together is None else asdict(together)}
            case {"verb": "quote"}:
                return self._quote(request)
            case {"verb": "leave"}:
                self._leave(only_without_jobs=bool(request.get("only_without_jobs", False)))
                return {}
            case {"verb": "page"}:
                return {"url": self._page(request.get("job"))}
            case {"job": str(job)}:
                return self._answer_about(JobId(job), request)
        raise ValueError(f"no such request: {request}")

    def _policy(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Change the policy, if the request names one, and return it."""
        before = self._host.policy
        match request:
            case {"policy": str(name), "parameters": dict(parameters)}:
                self._host.change_policy(name, parameters)
                self._settle()
                return {"policy": name, "parameters": parameters, "before": before}
        return {"policy": before, "parameters": dict(self._host.policy_parameters)}

    def _answer_about(self, job: JobId, request: dict[str, Any]) -> dict[str, Any]:
        """Perform a request that acts on a job and return the answer."""
        status = self._host.status(job)
        match request:
            case {"verb": "change", "change": dict(change)}:
                return self._change(status, request.get("when"), change)
            case {"verb": "stop"}:
                cause = str(request.get("cause", "`punctual stop`"))
                self._host.stop(job, cause, interrupts=bool(request.get("interrupts", False)))
            case {"verb": "pause"}:
                self._host.pause(job, str(request.get("cause", "")))
            case {"verb": "resume"}:
                self._host.resume(job)
            case _:
                raise ValueError(f"no such request: {request}")
        self._settle()
        return {"job": job}

    def _quote(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Quote a deadline for a known job, or for a submission that is not made; changes nothing."""
        amounts = [Resources(float(cores)) for cores in request.get("cores", ())]
        now = self._host.clocks()
        if (told_job := request.get("submission")) is not None:
            return told(self._host.quote(decode_submission(told_job).spec, amounts=amounts), now)
        job, when = JobId(str(request["job"])), request.get("when")
        deadline_s = None if when is None else self._host.moved_deadline_s(job, str(when), now)
        return told(self._host.quote(job, deadline_s, amounts), now)

    def _standing(self, status: JobStatus, now: Now, wait: Wait, budget: Mapping[str, Any]) -> dict[str, Any]:
        facts = self._facts(status.id)
        is_promised = facts.get("promised_until_wall") is not None
        return {
            **standing(status, now, wait, most_cores=budget.get("host_cores"), is_promised=is_promised, is_sent=True),
            "paused": None if status.pause is None else status.pause.told(),
            "waits_for": [name for name in status.spec.after if self._is_awaited(name)],
            **facts,
            **budget,
        }

    def _is_awaited(self, job: JobId) -> bool:
        return self._host.knows(job) and not self._host.has_ended(job)

    def _change(self, status: JobStatus, when: str | None, change: dict[str, Any]) -> dict[str, Any]:
        """Change a job's declaration; `when`: a new deadline as its user writes it; `none`: drop the deadline."""
        now = self._host.clocks()
        if when is not None:
            is_none = when.strip().lower() == NO_DEADLINE
            change["deadline_s"] = inf if is_none else self._host.moved_deadline_s(status.id, when, now)
        spec = self._host.change(status.id, SpecChange(**change))
        self._settle()
        deadline_at = None if spec.deadline_s is None else status.submitted_at + spec.deadline_s
        return {
            "job": spec.id,
            "weight": spec.weight,
            "floor_cores": spec.floor.cores,
            "ceiling_cores": spec.ceiling.cores,
            "workers": None if spec.worker is None else [spec.worker_counts()[0], spec.worker_counts()[-1]],
            "deadline_s": spec.deadline_s,
            "deadline_wall": None if deadline_at is None else now.wall_of(deadline_at).isoformat(),
            "left_s": None if deadline_at is None else deadline_at - now.at,
        }
