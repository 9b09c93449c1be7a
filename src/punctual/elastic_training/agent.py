"""The agent: manages the workers of one training, in the process that the script was started as.

The agent manages workers on other nodes through the job's processes there (`other_node`), which do for it what it does
itself for those beside it (`node_workers`).

The agent never trains. It has workers forked, brings them together in *generations*, lets go of those that are not
wanted any more, and replaces those that die. Punctual and the agent talk through the page: the target of how many
workers there are to be, and the workers there are.

A generation is formed when all members of the one before it have joined: they have left their group after the same
step, or it has failed under them. A planned change is announced, by raising the board's number, only when all the
newcomers that it needs are ready to train. What is announced is carried out, and the newest target comes after it.
"""

import os
import select
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from time import monotonic_ns
from typing import Any, Self

from punctual.channel import BLOCK_VARIABLE, SERVERS_VARIABLE, Declaration, PageError, SharedBlock, process_number
from punctual.elastic_training import other_node
from punctual.elastic_training.agent_client import SocketAgentClient
from punctual.elastic_training.elastic_stats import ElasticStats
from punctual.elastic_training.heartbeat_board import N_SLOTS
from punctual.elastic_training.membership import Membership, NodePlace, source_of
from punctual.elastic_training.node_workers import LocalWorkers, Words, last_line
from punctual.elastic_training.other_nodes import NodeWorkers, OtherNodes, RemoteWorkers
from punctual.elastic_training.worker_pool import (
    HANG_S,
    Worker,
    WorkerPool,
    end_of,
    hang_s_allowed,
    hung,
    is_excused,
    late,
    parts,
    shell_code,
)
from punctual.tracking import session
from punctual.tracking.complaint import warn

#: Deaths before a first step, one after the other, or workers that stood still after the same one: another would, too.
_N_DEATHS_MAX = 3


def managed_page() -> SharedBlock | None:
    """Return the job's page if Punctual manages this training's workers; None: it runs in this process."""
    path = os.environ.get(BLOCK_VARIABLE)
    if not path:
        return None
    try:
        page = SharedBlock.open(path)
    except (OSError, PageError):  # whoever claims the page tells it
        return None
    if page.worker_target().n_workers > 0:
        return page
    page.close()
    return None


def serve(train: Callable[..., object], page: SharedBlock) -> None:
    """Run `train` in as many workers as Punctual wants on the job's `page`, and return when it has ended.

    * Raises `ValueError`: the function cannot be found by its name.
    * Raises `SystemExit`: the training has failed, or has left with an exit code.
    """
    hang_s = hang_s_allowed()
    with ExitStack() as opened:
        opened.callback(page.close)
        _leave_page_to_workers(page)
        place = other_node.first_node()
        if place is not None:
            raise SystemExit(other_node.serve(place, partial(_run_worker, train), page))
        agent = opened.enter_context(Agent(partial(_run_worker, train), page, hang_s=hang_s))
        code = agent.run()
    if code:
        raise SystemExit(code)


def _run_worker(train: Callable[..., object], agent: SocketAgentClient) -> None:
    """Run a worker. Only workers load torch and the rest: the agent is without torch unless the script loads it."""
    import_module("punctual.elastic_training.context").run_worker(train, agent)


def _leave_page_to_workers(page: SharedBlock) -> None:
    """Leave the page to the first worker, who reports steps; the script's top level may have claimed it."""
    if session._session is not None:  # noqa: SLF001 -- asking for the session would make one, and claim the page
        session._session.mute()  # noqa: SLF001
    if page.declaration().pid == process_number():
        page.declare(Declaration())


class Agent:
    """Agent of one training; a context manager, whose end is the workers' end. See the module.

    * `train`: the worker's training function, called with its connection.
    * `hang_s`: seconds after which a worker that stands still while others wait for it is ended.
    """

    def __init__(
        self, train: Callable[[SocketAgentClient], object], page: SharedBlock, *, hang_s: float = HANG_S
    ) -> None:
        self._hang_ns = int(hang_s * 1e9)
        self._servers = _servers_allowed()
        self._page = page
        self._stats = ElasticStats(page.publish_workers, os.getpid())
        self._poll = select.poll()
        self._here = LocalWorkers(train, self._poll, self._stats)
        self._others = OtherNodes(page, self._here, self._poll)
        self._pool = WorkerPool()
        self._generation = 0
        self._after_fault = False
        #: Instant of a worker's report that the state was lost with the servers, none of which is known to have ended.
        self._state_lost_ns = 0
        #: Deaths of workers that had done nothing, and generations that were broken before a step, since the last first step.
        self._n_deaths = self._n_stillborn = 0
        #: Workers that stood still, by the steps that they had done.
        self._n_hung: Counter[int] = Counter()
        self._exit_code: int | None = None
        #: Instant at which the first training function ended; whether all must end at once because of a failure.
        self._ends_ns, self._has_failed = 0, False
        #: Instant of the last check for hanging workers.
        self._checked_ns = monotonic_ns()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._others.close()
        self._here.close()

    @property
    def _nodes(self) -> list[NodeWorkers]:
        """The agent's own node, and the others in the order of their joining."""
        return [self._here, *self._others.nodes]

    def run(self) -> int:
        """Run until the training has ended, and return its exit code."""
        while self._exit_code is None or self._pool.workers:
            # Seconds between two looks at the page and at the board; a change of size is not urgent: training goes
            # on.
            for fd, _ in self._poll.poll(0.05 * 1e3):
                for node in self._nodes:
                    for words in node.receive(fd):
                        self._on_message(node, words)
            self._reconcile(monotonic_ns())
        self._stats.leave()
        return self._exit_code

    # What workers and their nodes say.

    def _on_message(self, node: NodeWorkers, words: Words) -> None:
        if "slot" not in words:
            self._on_node_failed(node, words["trace"])
            return
        worker = self._pool.by_slot(node, words["slot"])
        match words["said"]:
            case "forked":
                worker.pid, worker.since_ns = words["pid"], monotonic_ns()
            case "not forked":
                self._remove(worker)
                self._do_without(node, f"no process can be forked: {words['cause']}")
            case "ended":
                self._on_worker_exit(worker, words["code"])
            case "join":
                self._join(worker, words)
            case "stepped":
                worker.has_stepped, self._n_deaths, self._n_stillborn = True, 0, 0
                self._stats.resume(words["n_steps"], words["stepped_ns"])
            case "finished":
                self._on_train_returned(worker, 0)
            case "left":
                self._on_train_returned(worker, words["code"])
            case "failed":
                self._fail(worker, words["trace"])

    def _on_node_failed(self, node: NodeWorkers, trace: str) -> None:
        """Handle a node that can have no workers: the kernel ends its present ones with their parent."""
        if isinstance(node, RemoteWorkers):
            self._lose_node(node, last_line(trace))
            return
        for worker in list(self._pool.of(node)):
            self._remove(worker)
        self._end(1, trace)

    def _lose_node(self, node: RemoteWorkers, why: str) -> None:
        """Drop a node that has left or is silent: the training goes on with the others."""
        members = [worker for worker in self._pool.of(node) if worker in self._pool.members]
        for worker in members:
            self._stats.stop(worker.heartbeat.n_steps, worker.heartbeat.stepped_ns)
        for worker in list(self._pool.of(node)):
            self._pool.drop(worker)
            self._fail_unfinished(worker, f"the loss of its node ({why})")
        self._others.drop(node)
        if members and self._exit_code is None:
            self._break_generation()
            warn(
                "a node must stay until it is told to leave",
                why,
                f"node {node.name}",
                f"Training goes on with {len(self._pool.members)} workers.",
            )

    def _join(self, worker: Worker, words: dict[str, Any]) -> None:
        if worker.state == "leaving":  # it has said so before it was killed, and must not be taken for a newcomer
            return
        worker.n_steps, worker.progress = words["n_steps"], words["progress"]
        worker.become("ready", monotonic_ns())
        if worker in self._pool.trainers:
            self._stats.stop(worker.n_steps, words["stepped_ns"])
        if words["after_fault"]:
            self._break_generation()
        if not words["has_state"]:
            self._state_lost_ns = self._state_lost_ns or monotonic_ns()

    def _on_train_returned(self, worker: Worker, code: int) -> None:
        """Note that a worker's training function has ended; it leaves together with the others."""
        if worker.state == "leaving":  # it was told to, and that is how it ended
            worker.answer()
            return
        worker.become("done", monotonic_ns())
        if self._pool.trainers and worker not in self._pool.members:
            self._give_up_target(worker.node, "a new worker has ended without training")
            self._dismiss(worker)
            return
        self._exit_code = self._exit_code or code
        self._ends_ns = self._ends_ns or monotonic_ns()

    def _fail(self, worker: Worker, trace: str) -> None:
        """Fail the training after an exception in the script, unless it can go on without the new worker."""
        worker.answer()
        worker.become("leaving", monotonic_ns())
        if worker in self._pool.members or not self._pool.members:
            self._end(1, trace)
        else:
            self._give_up_target(worker.node, f"a new worker has failed: {last_line(trace)}")

    def _on_worker_exit(self, worker: Worker, code: int) -> None:
        """Handle the end of a worker's process."""
        stamp, had_servers = worker.heartbeat, bool(self._pool.servers)
        was_member = self._remove(worker)
        how = "because it stood still" if worker.has_hung else end_of(code)
        self._fail_unfinished(worker, f"an end {how}", code=shell_code(code))
        if worker.state in ("leaving", "done") or self._exit_code is not None:
            return
        self._n_deaths += not worker.has_stepped
        if was_member:
            if not worker.serves:
                self._stats.stop(stamp.n_steps, stamp.stepped_ns)
            worker.node.stats.lose(serves=worker.serves)
            self._break_generation()
            if had_servers:
                self._restart()
        if was_member or not self._pool.of(worker.node):  # nobody else may come there any more
            worker.node.given_up = (-1, "")
        self._warn_worker_lost(worker, how)
        self._n_hung[stamp.n_steps] += worker.has_hung and worker.has_stepped
        if self._n_hung[stamp.n_steps] >= _N_DEATHS_MAX:
            cause = f"{self._n_hung[stamp.n_steps]} workers stood still after step {stamp.n_steps}"
        elif self._n_deaths >= _N_DEATHS_MAX:
            cause = f"{self._n_deaths} workers in a row ended before their first step, the last {how}"
        else:
            return
        self._do_without(worker.node, cause, shell_code(code))

    def _break_generation(self) -> None:
        """Break the generation after the loss of a member, or of its group: the others leave it."""
        self._after_fault = True
        if self._here.board.generation_broken < self._generation:
            self._n_stillborn += 1
        for node in self._nodes:
            node.tell_broken(self._generation)
        self._announce()

    def _restart(self) -> None:
        """Restart all workers from the checkpoint: the state was lost with a server or in the middle of a step."""
        self._state_lost_ns = 0
        for worker in list(self._pool.members):
            stamp = worker.heartbeat
            self._stats.stop(stamp.n_steps, stamp.stepped_ns)
            self._pool.members.remove(worker)
            self._dismiss(worker)

    def _remove(self, worker: Worker) -> bool:
        """Remove an ended worker; return whether it was a member."""
        worker.node.forget(worker.i_slot)
        return self._pool.drop(worker)

    def _warn_worker_lost(self, worker: Worker, how: str) -> None:
        if self._pool.members:
            goes_on = f"Training goes on with {len(self._pool.members)}"
        else:
            goes_on = (
                "Training begins again at the last checkpoint, if any" if self._generation else "Training has not begun"
            )
        warn(
            f"a {worker.role} must stay until it is told to leave",
            f"an end {how}",
            worker.title,
            f"{goes_on}; another one is started.",
        )

    def _do_without(self, node: NodeWorkers, cause: str, code: int = 1) -> None:
        """Go on without further workers of a node; end the training if this node has none left."""
        if node is not self._here or any(not one.serves and one.state != "leaving" for one in self._pool.of(node)):
            self._give_up_target(node, cause)
        else:
            self._end(code, f"punctual: {cause}\n")

    def _give_up_target(self, node: NodeWorkers, cause: str) -> None:
        """Stop trying to fulfil the present target of a node."""
        node.given_up = (node.target.request, cause)
        n_servers = node.target.n_servers
        wanted = f"{node.target.n_workers} workers" + f" and {n_servers} parameter servers" * bool(n_servers)
        where = "this training" if node is self._here else f"node {node.name}"
        n_there = sum(member.node is node for member in self._pool.members)
        warn(
            f"there must be {wanted}",
            f"{n_there} ({cause})",
            where,
            "It goes on with those there are, until another number is wanted.",
        )

    # What is to be done.

    def _reconcile(self, now_ns: int) -> None:
        """Bring the workers to the target."""
        self._allow_for_pause(now_ns)
        self._end_hung(now_ns)
        self._look_at_others(now_ns)
        if self._exit_code is not None:
            self._release_workers(now_ns)
            return
        target = self._page.worker_target()
        if target.n_servers:
            n_least, n_most = self._servers
            target = replace(target, n_servers=min(max(target.n_servers, n_least), n_most))
        if target != self._here.target:
            self._here.target, self._n_deaths = target, 0
        # The end of a process is told by the forkserver a moment after those that it was connected with have told
        # that; more than a moment where the machine is busy.
        if self._state_lost_ns and now_ns - self._state_lost_ns > 10.0 * 1e9:
            self._restart()
        for node in self._nodes:
            self._adjust_workers(node)
        if self._should_announce():
            self._announce()
        if self._is_announced() and all(member.state == "ready" for member in self._pool.members):
            self._form()
        self._answer()

    def _look_at_others(self, now_ns: int) -> None:
        """Admit nodes that have joined, and drop those that are gone or cannot be connected."""
        self._others.look(now_ns)
        for lost, why in self._others.lost(now_ns):
            self._lose_node(lost, why)
        if self._n_stillborn >= _N_DEATHS_MAX and self._others.nodes:
            self._n_stillborn = 0  # it may reach the first node and not the others
            self._lose_node(self._others.nodes[-1], "workers that could not be connected")

    def _adjust_workers(self, node: NodeWorkers) -> None:
        """Start the workers that a node lacks; dismiss surplus new ones."""
        has_given_up = node.given_up[0] == node.target.request
        # Who leaves still uses its device.
        may_start = not has_given_up and all(worker.state != "leaving" for worker in self._pool.of(node))
        for serves, n_wanted in ((False, node.target.n_workers), (True, node.target.n_servers)):
            there = [worker for worker in self._pool.of(node) if worker.serves is serves]
            n_members = sum(worker in self._pool.members for worker in there)
            newcomers = [worker for worker in self._pool.newcomers() if worker in there]
            n_missing = n_wanted - n_members - len(newcomers)
            for _ in range(n_missing if may_start else 0):
                self._start(node, serves=serves)
            for worker in newcomers[n_missing:] if n_missing < 0 else ():
                self._dismiss(worker)

    def _start(self, node: NodeWorkers, *, serves: bool) -> None:
        i_slot, target = self._pool.free_slot(node), node.target
        devices = self._pool.unused_devices(
            node, target.devices or node.visible_devices, 0 if serves else target.n_devices_each
        )
        self._pool.admit(node, i_slot, monotonic_ns(), serves=serves, devices=devices)
        node.fork(i_slot, serves=serves)

    def _dismiss(self, worker: Worker) -> None:
        """Dismiss a worker: by an answer if it waits for one, else by force."""
        if worker.state in ("ready", "done"):
            worker.answer(membership=None)
        elif worker.pid:
            worker.node.kill(worker.pid)
        else:
            return  # it is just being forked; the next look finds it
        worker.become("leaving", monotonic_ns())

    def _allow_for_pause(self, now_ns: int) -> None:
        """Restart the workers' times after a pause of the job, which has stopped this process too."""
        paused_ns = now_ns - self._checked_ns
        if paused_ns > self._hang_ns * 0.25:  # this process itself has stood still
            for worker in self._pool.workers:
                worker.since_ns = now_ns
            self._checked_ns = now_ns

    def _end_hung(self, now_ns: int) -> None:
        # Workers that hang are looked for, which reads the state of their processes, at least once a second.
        if now_ns - self._checked_ns < min(self._hang_ns * 0.05, 1e9):
            return
        self._checked_ns = now_ns
        # Seconds that a new worker may take to build its model; it may have to fetch something.
        slow = late(self._pool.newcomers(), now_ns, 600.0, self._hang_ns)
        # Seconds that workers may take to end once told to.
        stuck = [one for one in self._pool.workers if one.state == "leaving" and one.has_been(10.0, now_ns)]
        # A server waits for workers, and they for it: it only hangs if a signal has stopped it.
        groups = (self._pool.trainers, *([server] for server in self._pool.servers))
        still = [one for members in groups for one in hung(members, now_ns, self._hang_ns)]
        for worker in (*still, *slow, *stuck):
            if worker.pid and not worker.has_hung:
                worker.has_hung = True
                worker.node.kill(worker.pid)

    def _is_announced(self) -> bool:
        return self._here.board.generation_wanted > self._generation

    def _should_announce(self) -> bool:
        """Whether another set of members is available, and no starting worker is worth waiting for."""
        return not self._is_announced() and not self._pool.is_starting and self._chosen() != self._pool.members

    def _chosen(self) -> list[Worker]:
        """Return the wanted members in order: present ones first, so that the oldest stay.

        After a fault all stay, as each may be the only one with the last step.
        """
        n_least = Counter(id(worker.node) for worker in self._pool.trainers if self._after_fault)
        ready = [*self._pool.members, *(worker for worker in self._pool.newcomers() if worker.state == "ready")]
        chosen: list[Worker] = []
        for node in self._nodes:  # whose ranks follow each other
            trainers = [worker for worker in ready if worker.node is node and not worker.serves]
            chosen += trainers[: max(node.target.n_workers, n_least[id(node)])]
        return [*chosen, *[worker for worker in ready if worker.serves][: self._here.target.n_servers]]

    def _announce(self) -> None:
        if not self._is_announced():
            for node in self._nodes:
                node.announce(self._generation + 1)

    def _form(self) -> None:
        """Form the next generation, once all members have joined, and tell them their places."""
        before, chosen = self._pool.members, self._chosen()
        trainers = [worker for worker in chosen if not worker.serves]
        if not trainers or (not before and self._pool.is_starting):
            return  # the first generation, or all were lost: it begins with all that are being started
        if trainers[0].node is not self._here:
            return  # the first worker speaks for all, through this node's page: another one is being started
        source, lacking = source_of([worker.progress for worker in trainers])
        self._generation = self._here.board.generation_wanted
        devices = [(id(worker.node), device) for worker in trainers for device in worker.devices]
        n_there = Counter(id(worker.node) for worker in trainers)
        nodes = [node for node in self._nodes if n_there[id(node)]]
        places = [NodePlace(*node.address, n_there[id(node)]) for node in nodes if len(nodes) > 1]
        memberships = [
            Membership(
                generation=self._generation,
                rank=rank,
                n_workers=len(trainers),
                source=source,
                lacking=lacking,
                i_device=worker.devices[0] if worker.devices else None,
                shares_device=len(set(devices)) < len(devices),
                nodes=tuple(places),
                i_node=nodes.index(worker.node),
            )
            for rank, worker in enumerate(chosen)
        ]
        for worker in chosen:
            worker.become("training", monotonic_ns())
        n_steps = trainers[source].n_steps if source >= 0 else 0
        for node in nodes:
            there = [rank for rank, worker in enumerate(chosen) if worker.node is node]
            node.form([chosen[rank].i_slot for rank in there], [memberships[rank] for rank in there], n_steps)
        for worker in before:
            if worker not in chosen:
                self._dismiss(worker)
        is_resize = bool(before) and not self._after_fault and parts(chosen) != parts(before)
        for node in self._nodes:
            node.stats.form(
                self._generation,
                n_there[id(node)],
                len(chosen) - len(trainers) if node is self._here else 0,
                tuple(sorted({device for worker in trainers if worker.node is node for device in worker.devices})),
                resizes=is_resize,
                after_fault=self._after_fault,
            )
        self._pool.members, self._after_fault = chosen, False

    def _answer(self) -> None:
        """Answer Punctual's targets, once no change is in progress."""
        if self._is_announced() or not self._pool.members:
            return
        for node in self._nodes:
            target, stats, (request, cause) = node.target, node.stats, node.given_up
            if target.request == stats.request:
                continue
            there = [worker for worker in self._pool.members if worker.node is node]
            if parts(there) == (target.n_workers, target.n_servers):
                stats.answer(target.request, self._others.failure if target.spans_nodes else "")
            elif request == target.request and not any(newcomer.node is node for newcomer in self._pool.newcomers()):
                stats.answer(request, cause)

    # The end.

    def _end(self, code: int, text: str) -> None:
        """End everything at once, with the cause."""
        if not self._has_failed:  # of several failures the first one is shown
            sys.stdout.flush()
            sys.stderr.write(text)
        self._exit_code, self._has_failed = self._exit_code or code, True

    def _fail_unfinished(
        self, worker: Worker, got: str, remedy: str = "It has not done what it had left to do.", code: int = 1
    ) -> None:
        """Fail the training if a worker is lost that still trained when another one had ended."""
        if self._exit_code is not None and worker.state == "training" and not self._has_failed:
            warn("each worker must come to the end of the training function", got, worker.title, remedy)
            self._exit_code = self._exit_code or code

    def _release_workers(self, now_ns: int) -> None:
        """Dismiss waiting workers; also training ones that stand still unexcused, and all after a failure."""
        done = all(member.state != "training" for member in self._pool.trainers)
        for worker in self._pool.workers:
            waits = worker.state == "ready" or (worker.state == "done" and done)
            must = self._has_failed or (
                not is_excused(worker)
                and now_ns - max(self._ends_ns, worker.since_ns, worker.heartbeat.stamp_ns) >= self._hang_ns
            )
            if worker.state != "leaving" and (waits or must or worker not in self._pool.members):
                got = f"nothing new for {self._hang_ns / 1e9:g} s after another one's end"
                self._fail_unfinished(
                    worker, got, "Put what one worker does alone, and takes longer, into a `run.phase`."
                )
                self._dismiss(worker)


def _servers_allowed() -> tuple[int, int]:
    """Least and greatest number of parameter servers."""
    least, _, most = os.environ.get(SERVERS_VARIABLE, "").partition("..")
    return (int(least), int(most)) if least.isdecimal() and most.isdecimal() else (1, N_SLOTS)
