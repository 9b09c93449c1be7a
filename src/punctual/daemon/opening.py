"""Open hosts: new ones, and any with its planner and its control socket."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from punctual.daemon.control_answers import answer_control
from punctual.daemon.control_socket import ControlSocket
from punctual.daemon.cpu_sets import ConfinedPlanner
from punctual.daemon.host import Host
from punctual.daemon.host_executor import ExecutorSetup, new_setup
from punctual.daemon.host_options import INLINE_POLICY, HostOptions
from punctual.daemon.host_state import HostState, new_state
from punctual.daemon.machine_providers import fleets
from punctual.daemon.planner import SwitchingPlanner
from punctual.daemon.run_folder import RunFolder, create_run
from punctual.journal.errors import JournalTaken
from punctual.journal.sqlite import SqliteJournal


@contextmanager
def new_host(
    name: str,
    options: HostOptions,
    *,
    facts: Mapping[str, Any] | None = None,
    continues: bool = False,
) -> Iterator[Host]:
    """Yield a new host without jobs. Leaving it ends those that still run; a journal that was written stays.

    * `name`: name of the run; valid as a file's name.
    * `facts`: kept in the run's record (JSON values).
    * `continues`: write on in the journal of the run of this name, all of whose jobs have ended.

    * Raises `InvalidSpec`: another run has the name, or the options cannot be used here.
    * Raises `JournalUnusable`: the journal to write on is damaged, or of another version of Punctual.
    """
    run = create_run(name, {**(facts or {}), "options": asdict(options)}, continues=continues)
    with ExitStack() as ending:
        ending.push(tidying(run, is_new=not continues))
        journal = ending.enter_context(SqliteJournal(run.journal))
        journal.reset()
        state = new_state(run, journal)
        site = new_setup(run, journal, options)
        host = ending.enter_context(opened(state, site))
        site.join(state.time.from_machine)
        yield host


def tidying(run: RunFolder, *, is_new: bool = False) -> Callable[[type[BaseException] | None, object, object], None]:
    """Return an exit callback that removes the places of `run`, unless another process has taken them over.

    `is_new`: its journal goes too if it has no job.
    """

    def tidy(kind: type[BaseException] | None, *_: object) -> None:
        is_others = kind is not None and (issubclass(kind, JournalTaken) or bool(run.supervised_jobs()))
        if is_others or not run.is_steered_here():
            return
        is_empty = not run.jobs() and not fleets(run)
        if is_new and is_empty:  # what could not even be put together leaves no journal behind
            run.remove()
        else:
            run.remove_live_places()

    return tidy


@contextmanager
def opened(
    state: HostState,
    site: ExecutorSetup,
    begin: Callable[[Host], None] = lambda _: None,
    *,
    take: bool = False,
) -> Iterator[Host]:
    """Open the host to other processes; leaving it ends its jobs. If it cannot be opened, they are left as they are.

    * `begin`: called with the host before other processes can talk to it.
    * `take`: take the socket of a host that hangs.
    """
    executor = site.executor
    with ExitStack() as closing:
        with ExitStack() as failing:
            failing.callback(executor.release)
            planner = SwitchingPlanner(*state.policy(site.options.policy), alone=INLINE_POLICY, now=state.time.now)
            closing.callback(planner.close)
            host = Host(state, site, planner if site.cpu_sets is None else ConfinedPlanner(planner, site.cpu_sets))
            begin(host)
            control = ControlSocket(state.run.socket, partial(answer_control, host), take=take)
            host.is_answering = control.is_answering
            failing.pop_all()
        try:
            with control:
                yield host
            if not host.is_handed_over:
                host.end_jobs("Punctual is ending")
        except JournalTaken:  # another process steers the jobs now
            executor.release()
            raise
        except BaseException:
            executor.close()
            raise
