"""Jobs from published traces and from generators."""

from punctual.sim.traces.bad_rows import BadRow as BadRow
from punctual.sim.traces.job import TraceJob as TraceJob
from punctual.sim.traces.trace import Trace as Trace
from punctual.sim.traces.trace import formats as formats
from punctual.sim.traces.trace import read as read
