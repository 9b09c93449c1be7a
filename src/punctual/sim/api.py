"""Studies from Python: `punctual.simulate`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from punctual.sim.result import Result
from punctual.sim.scenario import Scenario, keys_in
from punctual.sim.study import Study, StudyProgress

#: A policy, rule or generator: its name with or without parameters, as text or as a table.
Named = str | Mapping[str, Any]


def simulate(
    scenario: str | Path | Scenario | None = None,
    *,
    policies: Named | Sequence[Named] | None = None,
    seeds: int | Sequence[int] | None = None,
    trace: str | Path | Mapping[str, Any] | None = None,
    deadlines: Named | None = None,
    scaling: Named | None = None,
    cluster: str | Sequence[Mapping[str, Any]] | None = None,
    physics: Mapping[str, Any] | None = None,
    controller: str | None = None,
    out: str | Path = "simulation",
    n_processes: int = 1,
    tell: Callable[[StudyProgress], None] | None = None,
) -> Result:
    """Run policies on the same simulated jobs.

    Parameters
    ----------
    scenario
        A scenario or the TOML file of one; None: the other arguments say it all.
    policies, seeds, trace, deadlines, scaling, cluster, physics, controller
        The keys of a scenario, with the same meaning; given beside `scenario` they take the place of its own.
    out
        Folder of the results. What is there already and still holds is not run again.
    n_processes
        Runs at a time. With more than one, a script needs ``if __name__ == "__main__":`` around the call.
    tell
        Is called with the progress whenever there is something new.

    Raises
    ------
    InvalidSpec
        Something cannot be used; the error says what, where, and what to do.

    Examples
    --------
    >>> result = punctual.simulate(policies=["fifo", "shortest-remaining"], cluster="4x8")  # doctest: +SKIP
    >>> result.summary, result.jobs, result.plot()  # doctest: +SKIP
    """
    given = {
        "policies": _listed(policies), "seeds": _plain(seeds), "trace": _plain(trace), "deadlines": deadlines,
        "scaling": scaling, "cluster": _plain(cluster), "physics": physics, "controller": controller,
    }  # fmt: skip
    keys = {**_keys(scenario), **{name: value for name, value in given.items() if value is not None}}
    return Study(Scenario.of(keys, "the arguments"), Path(out)).run(n_processes=n_processes, tell=tell)


def _keys(scenario: str | Path | Scenario | None) -> dict[str, Any]:
    if scenario is None:
        return {}
    return scenario.keys() if isinstance(scenario, Scenario) else keys_in(Path(scenario))


def _listed(policies: Named | Sequence[Named] | None) -> list[Named] | None:
    if policies is None:
        return None
    return [policies] if isinstance(policies, str | Mapping) else list(policies)


def _plain(value: Any) -> Any:
    """Paths as text, and sequences as lists."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
