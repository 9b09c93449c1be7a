"""Allocations over a time-slotted horizon: who is on time, at what cost, or how late."""

from slots.cost import least_cost as least_cost
from slots.on_time import most_on_time as most_on_time
from slots.prices import cost_bound as cost_bound
from slots.prices import on_time_bound as on_time_bound
from slots.problem import SlotPlan as SlotPlan
from slots.problem import SlotProblem as SlotProblem
from slots.share import minimum_share as minimum_share
from slots.tardiness import least_tardiness as least_tardiness
from slots.tardiness import tardiness as tardiness
from slots.tardiness import tardiness_bound as tardiness_bound
