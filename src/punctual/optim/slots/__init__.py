"""Allocations over a time-slotted horizon: who is on time, at what cost, or how late."""

from punctual.optim.slots.cost import least_cost as least_cost
from punctual.optim.slots.on_time import most_on_time as most_on_time
from punctual.optim.slots.prices import cost_bound as cost_bound
from punctual.optim.slots.prices import on_time_bound as on_time_bound
from punctual.optim.slots.problem import SlotPlan as SlotPlan
from punctual.optim.slots.problem import SlotProblem as SlotProblem
from punctual.optim.slots.share import minimum_share as minimum_share
from punctual.optim.slots.tardiness import least_tardiness as least_tardiness
from punctual.optim.slots.tardiness import tardiness as tardiness
from punctual.optim.slots.tardiness import tardiness_bound as tardiness_bound
