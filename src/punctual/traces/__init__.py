"""Jobs from published traces and from generators."""

from punctual.traces.bad_rows import BadRow as BadRow
from punctual.traces.job import TraceJob as TraceJob
from punctual.traces.trace import Trace as Trace
from punctual.traces.trace import formats as formats
from punctual.traces.trace import read as read
