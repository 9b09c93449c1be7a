"""Jobs as processes of this machine, their CPU grants enforced by control groups or kept by pacing."""
