"""Rules by which a job of a trace runs with other devices than it had: the file's name is the rule's."""

from punctual.sim.scaling._base import ScalingRule as ScalingRule
from punctual.sim.scaling._base import sim_jobs as sim_jobs
