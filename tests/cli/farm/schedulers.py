"""Real schedulers on loopback: Slurm of one node, and Ray of a head and a node. A node can be killed.

``make farm`` installs them. Their processes belong to this process and are killed when it ends in whatever way.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.remote.farm.servers import FARM, MissingServerError, daemon, free_ports, output_of, program, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROJECT = Path(__file__).parents[3]
PYTHONPATH = os.pathsep.join(
    [str(PROJECT / name) for name in ("tests/cli/farm/site", ".", "cli", "migrations")]
    + [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
)
"""Where processes find this project, and the backend ``writer``."""

_MARK = "TRTCACHE_FARM_NODE"
"""The environment variable that marks the processes of a node."""


@dataclass
class Scheduler:
    """A running scheduler.

    ``python`` runs the commands that submit to it, with ``environ``.
    """

    name: str
    version: str
    environ: Mapping[str, str]
    python: str = sys.executable
    node: ExitStack = field(default_factory=ExitStack)

    def start_node(self) -> None:
        """Start the node again."""
        raise NotImplementedError

    def node_processes(self) -> list[psutil.Process]:
        """Return the processes of the node, with the jobs that run on it."""
        raise NotImplementedError

    def kill_node(self) -> int:
        """Kill all of the node's processes at once, as a power cut does; return how many there were."""
        processes = self.node_processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.suspend()  # none sees another one die
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)
        return len(processes)


def environ_of(process: psutil.Process) -> set[str]:
    """Return the environment of a process as ``NAME=VALUE``, without what it has written its title over."""
    try:
        return set(Path(f"/proc/{process.pid}/environ").read_text(errors="replace").split("\0"))
    except OSError:
        return set()


def processes_with(*variables: str) -> list[psutil.Process]:
    """Return the processes that have all of these ``NAME=VALUE`` in their environment."""
    return [process for process in psutil.process_iter() if environ_of(process).issuperset(variables)]


_SLURM = """\
ClusterName=farm
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
# A job that was requeued waits until its old credential has expired: 2 minutes by default.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
SlurmctldPort={controller}
SlurmdPort={node}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
SlurmdTimeout=10
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class Slurm(Scheduler):
    """Slurm of one node with two CPUs, with a munge of its own."""

    folder: Path

    def start_node(self) -> None:
        """Start slurmd, which tells the controller that no job runs on it."""
        command = [program("slurmd"), "-D", "-c", "-f", str(self.folder / "slurm.conf")]
        mark = {_MARK: str(self.folder)}
        self.node.enter_context(daemon(self.folder / "output", command, {**self.environ, **mark}))
        for _ in range(300):
            state = output_of("sinfo", "--noheader", "--format=%T", environ=self.environ).strip()
            if state in ("idle", "mixed", "allocated"):
                return
            time.sleep(0.1)
        raise MissingServerError(f"the node is {state}: {(self.folder / 'slurmd.log').read_text()[-500:]}")

    def node_processes(self) -> list[psutil.Process]:
        """Return slurmd, the steps, and the jobs, which have the environment of who submitted them."""
        config = f"SLURM_CONF={self.environ['SLURM_CONF']}"
        jobs = [each for each in processes_with(config) if any(v.startswith("SLURM_JOB_ID=") for v in environ_of(each))]
        return [*processes_with(f"{_MARK}={self.folder}"), *jobs]

    def jobs(self) -> list[str]:
        """Return the states of the jobs that have not ended."""
        return output_of("squeue", "--noheader", "--array", "--format=%T", environ=self.environ).split()


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Slurm's controller and a node.

    Raises:
        MissingServerError: it is not installed, or does not start.
    """
    controller, munged = program("slurmctld"), program("munged")
    program("slurmd")
    controller_port, node_port = free_ports(2)
    host, user = socket.gethostname().partition(".")[0], psutil.Process().username()
    config, log = folder / "slurm.conf", folder / "output"
    for name in ("spool", "state"):
        (folder / name).mkdir()
    config.write_text(_SLURM.format(host=host, user=user, folder=folder, controller=controller_port, node=node_port))
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(64))
    names = {"key-file": key, "socket": folder / "munge.socket"}
    names |= {f"{name}-file": folder / f"munge.{name}" for name in ("pid", "log", "seed")}
    options = [f"--{name}={path}" for name, path in names.items()]
    environ = {"SLURM_CONF": str(config)}
    with ExitStack() as stack:
        stack.enter_context(daemon(log, [munged, "--force", "--foreground", *options]))
        stack.enter_context(daemon(log, [controller, "-D", "-c", "-f", str(config)], environ))
        wait_for(controller_port, log)
        running = Slurm("Slurm", output_of(controller, "-V").split()[-1], environ)
        running.folder = folder
        stack.callback(running.kill_node)
        stack.enter_context(running.node)
        running.start_node()
        yield running


class Ray(Scheduler):
    """Ray of a head, which runs no tasks, and one node with two CPUs."""

    folder: Path
    started: int = 0

    def start_node(self) -> None:
        """Start a node."""
        options = [f"--address={self.environ['RAY_ADDRESS']}", "--num-cpus=2"]
        _start_ray(self, self.node, options, {_MARK: f"{self.folder}/node"})

    def node_processes(self) -> list[psutil.Process]:
        """Return the processes of the node, its workers, and what these have started."""
        found = processes_with(f"{_MARK}={self.folder}/node")
        for process in list(found):
            with suppress(psutil.Error):  # workers write their title over the environment that others see
                found += process.children(recursive=True)
        return list(set(found))

    def workers(self) -> list[psutil.Process]:
        """Return the workers that run a task now."""
        found = []
        for process in self.node_processes():
            with suppress(psutil.Error):
                if process.cmdline()[0].startswith("ray::build_cell") or "ray::trtcache" in process.cmdline()[0]:
                    found.append(process)
        return found


@contextmanager
def ray(_folder: Path) -> Iterator[Ray]:
    """Ray's head and a node, in the Python environment of ``make farm`` that has Ray.

    Raises:
        MissingServerError: it is not installed, or does not start.
    """
    python = FARM / "ray" / "bin" / "python"
    if not python.exists():
        raise MissingServerError("Ray is not installed: make farm")
    version = output_of(str(python), "-W", "ignore", "-c", "import ray; print(ray.__version__)").split()[-1]
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # its sockets need short paths
    (port,) = free_ports(1)
    # Workers are niced by 15, which starves them beside other work on the machine.
    environ = {
        "RAY_ADDRESS": f"127.0.0.1:{port}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "PYTHONPATH": PYTHONPATH,
    }
    running = Ray("Ray", version, environ, str(python))
    running.folder = folder
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(_kill, f"{_MARK}={folder}/head")
        options = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}"]
        _start_ray(running, stack, options, {_MARK: f"{folder}/head"})
        stack.callback(running.kill_node)
        stack.enter_context(running.node)
        running.start_node()
        yield running


def _start_ray(running: Ray, stack: ExitStack, options: list[str], mark: Mapping[str, str]) -> None:
    command = [running.python, "-W", "ignore", "-m", "ray.scripts.scripts", "start", "--block", *options]
    stack.enter_context(daemon(running.folder / "output", command, {**running.environ, **mark}))
    for _ in range(600):
        output = (running.folder / "output").read_text(errors="replace")
        if output.count("Ray runtime started.") > running.started:
            running.started += 1
            return
        time.sleep(0.1)
    raise MissingServerError(f"Ray did not start: {output[-500:]}")


def _kill(variable: str) -> None:
    for process in processes_with(variable):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
