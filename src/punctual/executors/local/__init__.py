"""Jobs as processes of this machine, their CPU grants enforced by control groups or kept by pacing."""

from punctual.executors.local.executor import STOP_GRACE_S, LocalExecutor

__all__ = ["STOP_GRACE_S", "LocalExecutor"]
