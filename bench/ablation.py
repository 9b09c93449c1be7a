"""What each heuristic of sharing cores is worth: the same simulated plays with it, and with it alone taken away.

A heuristic that is worth nothing is removed; its row stays on record from the revision that had it. Plays and seeds are those by which
none was chosen. Broken promises count without those that a crash of their own job broke.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from math import sqrt
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

import _sharing_worlds as worlds
from _common import Results, on_record, revision
from _report import Section, page_of, run

from punctual.policies import _core_promises
from punctual.policies._core_job_state import CoreJobState
from punctual.policies._core_promises import CorePromises

NAME = "ablation"
SEEDS, QUICK_SEEDS = range(100, 104), range(100, 102)
#: Plays by what a heuristic is about.
_PROMISES = ("160 %", "160 %, told", "arriving", "fits, disturbed", "160 %, disturbed")
_PLACES, _WORKERS = ("arriving", "arriving, told", "few places"), ("with workers", "fits")
_ALLOCATOR = "punctual.policies._core_allocator.CoreAllocator"
_PROMISED, _STATE = "punctual.policies._core_promises.CorePromises", "punctual.policies._core_job_state"
_in_turn_of_starts = None


def _side_by_side(promises: CorePromises, free: float, reserved_cores: float) -> float:
    unmeasured = promises._in_turn()
    for member in unmeasured:
        free, member.cores = free + member.cores, 0.0
    return free - _core_promises._raise(unmeasured, _core_promises._weight, free - reserved_cores)


def _weight(_promises: CorePromises, member: CoreJobState) -> float:
    return member.view.spec.weight
