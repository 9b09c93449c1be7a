"""What a change does to a job that promises-first gives another number of workers."""

from math import isfinite

from punctual.core.story import Reason
from punctual.policies._base import span_text
from punctual.policies._candidates import Candidate


def why(one: Candidate, column: int, *, is_promised: bool) -> Reason:
    """The reason of going to `column`; `is_promised`: a promise asks for workers at this moment."""
    options, n = one.options, one.options.counts[column]
    facts = {"n_workers_before": float(one.n), "n_workers": float(n)}
    if n == 0:
        return Reason("paused", f"{one.n} -> 0 workers: what it had is worth more to others for now", facts)
    after_s = None if one.remaining is None else one.remaining / float(options.rates[column])
    due = _due(one, after_s, facts, is_promised=is_promised) if isfinite(one.left_s) else ""
    if not one.n:
        verb = "starts" if one.view.started_at is None else "goes on"
        return Reason("starts", f"{verb} with {n} worker{'s' * (n != 1)}{due}", facts)
    code = "grows" if n > one.n else "shrinks" if n < one.n else "moves"
    change = f"{one.n} -> {n} workers"
    if one.remaining is None or after_s is None or not one.column:
        return Reason(code, f"{change}{due}", facts)
    sooner_s = one.remaining / float(options.rates[one.column]) - after_s
    facts["sooner_s"] = sooner_s
    gain = "earlier, worth more per device than elsewhere"
    loss = "later, the devices are worth more elsewhere"
    return Reason(code, f"{change}: finishes {span_text(abs(sooner_s))} {gain if sooner_s >= 0 else loss}{due}", facts)


def _due(one: Candidate, after_s: float | None, facts: dict[str, float], *, is_promised: bool) -> str:
    """How far the deadline is from the end; notes it in `facts` too."""
    facts["left_s"] = one.left_s
    if after_s is None:
        return ""
    slack_s = one.left_s - after_s
    facts["slack_s"] = slack_s
    word = "promised deadline" if is_promised else "deadline"
    return f"; {word} {span_text(abs(slack_s))} {'behind' if slack_s >= 0 else 'before'} its end"
