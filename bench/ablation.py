"""What each heuristic of sharing cores is worth: it is taken away alone, and the same simulated plays are made again."""

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

import _sharing_worlds as worlds

from punctual.policies import _core_allocator, _core_job_state, _core_promises
from punctual.policies._core_promises import CorePromises as P

CHOOSE, REPORT = range(5), range(100, 105)
_share, _init = P.share, P.__post_init__


def _use_idle(tight, crowded):
    def use(self, free):
        if len(self.members) == 1 or not self.kept or free <= 0:
            return free
        plan = self._planned if self._planned is not None else self._plan(self._background_cores())
        for member in sorted(self.kept, key=_core_promises._due_first):
            if (crowded and self._is_crowded(plan, member.due_s)) or (tight and self._has_little_room(member)):
                more = min(free, max(0.0, member.most_cores - member.cores))
                free, member.cores = free - more, member.cores + more
        return free
    return use


def _always_ahead(self, free):
    for member in sorted(self.kept, key=_core_promises._due_first) if len(self.members) > 1 else ():
        more = min(free, max(0.0, member.most_cores - member.cores))
        free, member.cores = free - more, member.cores + more
    return free


def _side_by_side(self, free, reserved_cores):
    unmeasured = self._in_turn()
    for member in unmeasured:
        free, member.cores = free + member.cores, 0.0
    return free - _core_promises._raise(unmeasured, _core_promises._weight, free - reserved_cores)


def _not_before(self, members):
    self.planned = set()
    return _likely(self, members)
_likely = P._likely


def _likely_measured(self, members):
    return _likely(self, [m for m in members if not m.unmeasured or m in self.pending])


def _margins(frac):
    return lambda self, kept, beside, less_frac=0.0: [m.job(frac * self.risk_sigmas) for m in kept]


def _init_no_lost(self):
    _init(self)
    self.lost = set()


def _share_unhurried(self, reserved_cores=0.0, borrowed_cores=0.0, *, hurries=False):
    _share(self, reserved_cores, borrowed_cores)


def _always_plan(self):
    background, holders = self._background_cores(), self._holders()
    self._planned = self._plan(background)
    for member, share in zip(holders, self._planned.shares, strict=True):
        member.share, member.cores = share, share.now


def _plan_expected(self, background):
    jobs = [m.job() for m in self.kept] + [m.job(late_s=m.slack_s) for m in self.likely]
    room = self._room(self._holders())
    plan = _core_promises.level(jobs, room.less(background))
    return plan if plan.fits or not background else _core_promises.level(jobs, room)


def _kept_expected(members, cores, floor_cores, risk_sigmas):
    less = cores.less(floor_cores)
    return _core_promises.all_fit([m.job(late_s=m.slack_s) for m in members], _core_promises._with_freed(members, less))


_dated0 = _core_allocator.CoreAllocator._dated
_in_turn0 = _core_allocator.CoreAllocator._in_turn
K, S, A = "_core_promises.", "_core_job_state.", "_core_allocator."
C = K + "CorePromises."
J = S + "CoreJobState."
L = A + "CoreAllocator."
VARIANTS: dict[str, list[tuple[str, Any]]] = {
    "as it is": [],
    "work ahead": [(C + "_use_idle_cores", lambda self, free: free)],
    "work ahead: tight": [(C + "_use_idle_cores", _use_idle(False, True))],
    "work ahead: crowded": [(C + "_use_idle_cores", _use_idle(True, False))],
    "work ahead: only if short (ahead always)": [(C + "_use_idle_cores", _always_ahead)],
    "lend if crowded": [(C + "is_crowded", lambda self: False)],
    "lend at all": [(L + "_with_lent", lambda self, node, promises, room: (promises, []))],
    "rest of 10 s": [(A + "_REST_S", 0.0)],
    "named frac": [(K + "_NAMED_FRAC", 0.0)],
    "new frac": [(K + "_NEW_FRAC", 0.0)],
    "new wait": [(C + "_is_new", lambda self, member: False)],
    "together": [(K + "_TOGETHER_S", 0.0)],
    "margins as fit (always full)": [(C + "_with_margins", _margins(1.0))],
    "margins as fit (none)": [(C + "_with_margins", _margins(0.0))],
    "likely": [(C + "_likely", lambda self, members: [])],
    "likely: last first": [(C + "_likely", _not_before)],
    "likely: guessed": [(C + "_likely", _likely_measured)],
    "lost first": [(C + "__post_init__", _init_no_lost)],
    "lost nearly done first": [(J + "is_nearly_done", lambda self: False)],
    "deferred": [(C + "_deferred_cores", lambda self: 0.0)],
    "measure in turn": [(C + "_measure_in_turn", _side_by_side)],
    "landing": [(J + "is_landing", property(lambda self: False))],
    "undelivered": [(C + "_undelivered_cores", lambda self: 0.0)],
    "returning": [(L + "_returning_cores", lambda self, node: 0.0)],
    "hurries": [(C + "share", _share_unhurried)],
    "plan with margins": [(C + "_plan", _plan_expected)],
    "steady demands": [(C + "_hold_planned", _always_plan)],
    "urgency": [(C + "_urgency", lambda self, member: member.view.spec.weight)],
    "late frac": [(S + "_LATE_FRAC", 0.0)],
    "hope frac": [(S + "_HOPE_FRAC", 0.0)],
    "doubt frac": [(S + "_DOUBT_FRAC", 0.0)],
    "measured s": [(S + "_MEASURED_S", inf)],
    "wait for workers": [(L + "_wait_for_workers", lambda self, waiting: None)],
    "dated": [(L + "_dated_on", lambda self, kind, cores: [])],
    "dated can wait": [(L + "_dated", lambda self, view, cores, left_s: _core_allocator._DatedCores(cores, left_s, can_wait=False))],
    "more workers": [(L + "_more_workers", lambda self, view: 0)],
    "take place": [(L + "_take_place", lambda self, view, members: [])],
    "undated place": [(L + "_in_turn", lambda self, waiting, *, has_undated: _in_turn0(self, waiting, has_undated=True))],
    "floors beside": [(L + "_leaves_promises_kept", lambda self, view, node, members: True)],
    "floors beside: best case": [(A + "are_kept_beside", _kept_expected)],
    "of ended": [(L + "_of_ended", lambda self, kind: [])],
    "due rounds": [(K + "_N_DUE_ROUNDS", 0)],
    "search": [("@punctual.solvers.core_deadlines._N_NODES_MAX", 0)],
    "fit steadily": [("@punctual.solvers.core_deadlines._fit_steadily", lambda jobs, timeline: False)],
}


def measure(name: str, seeds) -> dict[str, Any]:
    with ExitStack() as stack:
        for target, value in VARIANTS[name]:
            stack.enter_context(patch(target[1:] if target[0] == "@" else f"punctual.policies.{target}", value))
        begun = time.process_time()
        rows = [worlds.play(kind, seed) for kind in worlds.KINDS for seed in seeds]
    return {"rows": rows, "cpu_s": time.process_time() - begun}


def line(name, base, found):
    b, f = base["rows"], found["rows"]
    tot = lambda rows, k: sum(r[k] for r in rows)
    dw = [y["weight_met"] - x["weight_met"] for x, y in zip(b, f)]
    dt = [y["took_s"] / x["took_s"] - 1 for x, y in zip(b, f)]
    se = lambda d: stdev(d) * sqrt(len(d))
    n_diff = sum(x != y for x, y in zip(b, f))
    n = len(b) // len(worlds.KINDS)
    by = " ".join(f"{sum(dw[i*n:(i+1)*n]):+.0f}" for i in range(len(worlds.KINDS)))
    return (f"{name:40} prom {tot(f,'n_promised'):4} broken {tot(f,'n_broken'):3} lost {tot(f,'n_lost'):3} met {tot(f,'n_met'):4} "
            f"weight {sum(dw):+4.0f}±{se(dw):3.0f} [{by}] took {fmean(dt):+6.2%}±{se(dt)/len(dt):.2%} ended {tot(f,'n_ended')} plans {tot(f,'n_plans')} differ {n_diff:2} cpu {found['cpu_s']:.0f}")


if __name__ == "__main__":
    names = [n for n in VARIANTS if not sys.argv[2:] or n in sys.argv[2:] or n == "as it is"]
    for part, seeds in (("choose", CHOOSE), ("report", REPORT)) if sys.argv[1] == "both" else ((sys.argv[1], CHOOSE if sys.argv[1] == "choose" else REPORT),):
        base = None
        for name in names:
            try:
                found = measure(name, seeds)
            except Exception as error:
                print(name, "FAILED", repr(error)[:300], flush=True)
                continue
            base = base or found
            print(part, line(name, base, found), flush=True)
