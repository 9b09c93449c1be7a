"""Slurm on this machine, as this user: a controller, nodes that are up, and nodes that sleep until a job needs them."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.waiting import wait_until

#: Programs that it needs; all are in Debian's package `slurm-wlm`.
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")

#: Seconds from the notice of preemption to a job's end. Slurm 22.05 does not always preempt a job without a time limit.
GRACE_S = 300.0

_CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
PlugStackConfig=/dev/null
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
KillWait=2
MessageTimeout=5
SlurmdTimeout=300
ReturnToService=2
ResumeProgram={folder}/resume
SuspendProgram={folder}/suspend
PrologSlurmctld={folder}/await_nodes
SuspendTime=1
SuspendTimeout=5
ResumeTimeout=60
SuspendExcNodes=up[1-2]
NodeName=up[1-2] NodeHostName={host} NodeAddr=127.0.0.1 Port={up} CPUs=1 RealMemory=1000 Features=spot State=UNKNOWN
NodeName=cloud[1-2] NodeHostName={host} NodeAddr=127.0.0.1 Port={cloud} CPUs=1 RealMemory=1000 Features=cloud State=CLOUD
PartitionName=all Nodes=ALL Default=YES DefaultTime=120 MaxTime=INFINITE PriorityTier=1 PreemptMode=CANCEL GraceTime={grace_s:.0f}
PartitionName=urgent Nodes=ALL DefaultTime=120 MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""
_RESUME = """#!/bin/sh
export SLURM_CONF={folder}/slurm.conf
for node in $(scontrol show hostnames "$1"); do
    slurmd -D -N $node -b </dev/null >{folder}/$node.out 2>&1 &
done
"""
_SUSPEND = """#!/bin/sh
export SLURM_CONF={folder}/slurm.conf
for node in $(scontrol show hostnames "$1"); do
    kill $(cat {folder}/slurmd.$node.pid)
done
"""
#: Returns once the nodes are awake: then the controller starts the job at once, else with its look at all jobs every 30 s.
_AWAIT_NODES = """#!/bin/sh
export SLURM_CONF={folder}/slurm.conf
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    sinfo --noheader --nodes="$SLURM_JOB_NODELIST" --format=%T | grep -q '[#~*]' || exit 0
    sleep 0.5
done
"""


class SlurmCluster:
    """Slurm in `folder`; `open` returns once its nodes that are up are idle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        self.environment = {**os.environ, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}

    def open(self) -> None:
        for name in ("state", *(f"spool.{node}{i}" for node in ("up", "cloud") for i in (1, 2))):
            (self.folder / name).mkdir()
        ports = _free_ports(5)
        words = {
            "folder": self.folder,
            "ports": ports,
            "grace_s": GRACE_S,
            "user": getpass.getuser(),
            "host": socket.gethostname().split(".")[0],
        }
        up, cloud = (f"[{a},{b}]" for a, b in (ports[1:3], ports[3:5]))
        (self.folder / "slurm.conf").write_text(_CONF.format(**words, up=up, cloud=cloud))
        for name, text in {"resume": _RESUME, "suspend": _SUSPEND, "await_nodes": _AWAIT_NODES}.items():
            (self.folder / name).write_text(text.format(**words))
            (self.folder / name).chmod(0o700)
        self.start_controller()
        for node in ("up1", "up2"):
            self._daemons[node] = self._daemon("slurmd", "-D", "-N", node)
        wait_until(self._is_ready)

    def start_controller(self) -> None:
        self._daemons["controller"] = self._daemon("slurmctld", "-D")

    def end_controller(self) -> None:
        _end(self._daemons.pop("controller"))

    def close(self) -> None:
        """End all jobs and daemons."""
        with suppress(subprocess.SubprocessError, AssertionError):
            self.ask("scancel", f"--user={getpass.getuser()}")
            wait_until(lambda: self.ask("squeue", "--noheader"), lambda text: not text.strip())
        with ExitStack() as ends:
            for daemon in self._daemons.values():
                ends.callback(_end, daemon)
        for file in self.folder.glob("slurmd.cloud*.pid"):  # those that the controller started
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)

    def ask(self, *command: str) -> str:
        """Return what a command of Slurm prints."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def jobs(self, form: str = "%j %T") -> list[str]:
        """Return a line for each job that has not ended."""
        return self.ask("squeue", "--noheader", f"--format={form}").splitlines()

    def _is_ready(self) -> bool:
        for name, daemon in self._daemons.items():
            assert daemon.poll() is None, f"{name}: {(self.folder / 'slurmctld.out').read_text()}"
        command = ["sinfo", "--noheader", "--format=%T %D"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
        return "idle 2" in done.stdout

    def _daemon(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{command[0]}.out").open("ab") as output:
            return subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )


def missing_program(programs: Sequence[str] = PROGRAMS, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a program that is not installed here; None: all are."""
    path = f"{environment.get('PATH', '')}:/usr/sbin:/sbin"
    return next((program for program in programs if shutil.which(program, path=path) is None), None)


def _free_ports(n: int) -> list[int]:
    with ExitStack() as servers:
        opened = [servers.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [server.getsockname()[1] for server in opened]


def _end(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
