"""``trtcache warm --on slurm``: a job array of cells, through submitit."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trtcache.errors import SettingsError
from trtcache_cli.output import note
from trtcache_cli.warm_emit import sbatch_options
from trtcache_cli.warm_job import build_cell
from trtcache_cli.warm_jobs import CancelError, interrupts_later
from trtcache_cli.warm_run import FAILED, Outcome, build_arguments, last_line, outcome_of

if TYPE_CHECKING:
    from trtcache_cli.matrix import Cell, Matrix

_MOST_TASKS: Final = 1000
"""Tasks of an array; Slurm's default MaxArraySize is 1001."""

_STATES_S = 5.0
_GONE_S = 20.0
_UNFINISHED = {
    *("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
}


class SubmititJobs(ABC):
    """Jobs of one of submitit's executors. Their logs and results are in a folder that all hosts must have."""

    def __init__(self, *, cache_dir: Path | None, environ: Mapping[str, str]) -> None:
        """Create the folder, in the current directory, for this user alone: results are pickles.

        Raises:
            SettingsError: submitit is not installed.
        """
        try:
            import submitit
        except ImportError as error:
            raise SettingsError("--on slurm", "submitit is missing: pip install 'trtcache[slurm]'") from error
        self._api: Any = submitit
        self._cache_dir, self._environ = cache_dir, dict(environ)
        self.folder = Path(tempfile.mkdtemp(prefix="trtcache-warm-", dir=Path.cwd()))
        self._running: dict[Cell, Any] = {}
        self._states: Mapping[str, str] = {}
        self._asked_s = 0.0
        self._gone: dict[str, float] = {}
        self._has_failed = False

    @abstractmethod
    def _executor(self, image: str) -> Any:
        """Return the executor for the cells of an image; an empty one is this machine's software."""

    @abstractmethod
    def _read_states(self) -> Mapping[str, str] | None:
        """Return the state of each job by its number, None if the scheduler does not answer now."""

    @abstractmethod
    def _cancel(self, jobs: Sequence[Any]) -> None:
        """Cancel jobs.

        Raises:
            CancelError: the scheduler did not cancel all of them.
        """

    def submit(self, cells: Sequence[Cell]) -> None:
        """Submit an array for each image.

        Raises:
            SettingsError: Slurm does not take it.
        """
        by_image: dict[str, list[Cell]] = {}
        for cell in cells:
            by_image.setdefault(cell.image, []).append(cell)
        for image, own in by_image.items():
            for first in range(0, len(own), _MOST_TASKS):
                self._submit_array(image, own[first : first + _MOST_TASKS])
        what = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
        note(f"submitted {what}: jobs {', '.join(sorted(_arrays(list(self._running.values()))))}")

    def _submit_array(self, image: str, cells: Sequence[Cell]) -> None:
        arguments = [build_arguments(cell, self._cache_dir) for cell in cells]
        rest = [self._environ] * len(cells), [str(Path.cwd())] * len(cells)
        try:
            with redirect_stderr(StringIO()):  # submitit prints sbatch's errors, too
                jobs = self._executor(image).map_array(build_cell, arguments, *rest)
        except (RuntimeError, OSError) as error:
            raise SettingsError("--on slurm", " ".join(str(error).split())) from error
        self._running.update(zip(cells, jobs, strict=True))

    def poll(self) -> list[Outcome]:
        """Return the cells whose results are in the folder, and those whose jobs are gone without one."""
        names = set(os.listdir(self.folder))  # noqa: PTH208  # one listing, which also renews what NFS remembers
        self._ask()
        ended = []
        for cell, job in list(self._running.items()):
            if job.paths.result_pickle.name in names:
                ended.append(self._outcome(cell, job))
            elif self._is_gone(job):
                state, log = self._states.get(job.job_id, "the job is gone"), self._end_of_log(job)
                ended.append(Outcome(cell, FAILED, f"{state} without a result" + (f": {log}" if log else "")))
        for outcome in ended:
            del self._running[outcome.cell]
            self._has_failed |= outcome.outcome == FAILED
        return ended

    def states(self) -> Mapping[Cell, str]:
        """Return the states of the jobs that have not ended."""
        return {cell: self._states.get(job.job_id, "submitted").lower() for cell, job in self._running.items()}

    def cancel(self) -> int:
        """Cancel the jobs that have not ended.

        Raises:
            CancelError: the scheduler did not cancel all of them.
        """
        jobs = list(self._running.values())
        if jobs:
            self._has_failed = True
            self._cancel(jobs)
        return len(jobs)

    def close(self) -> None:
        """Remove the folder, unless something failed."""
        if self._has_failed:
            note(f"logs are in {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _outcome(self, cell: Cell, job: Any) -> Outcome:
        try:
            return outcome_of(cell, job.result())
        except RuntimeError as error:  # submitit's UncompletedJobError: it has the log
            return Outcome(cell, FAILED, last_line(str(error)) or type(error).__name__)

    def _ask(self) -> None:
        now_s = time.monotonic()
        if now_s - self._asked_s < _STATES_S:
            return
        self._asked_s = now_s
        states = self._read_states()
        if states is None:
            return
        self._states = states
        for job in self._running.values():
            if states.get(job.job_id) in _UNFINISHED:
                self._gone.pop(job.job_id, None)  # it was requeued
            else:
                self._gone.setdefault(job.job_id, now_s)

    def _is_gone(self, job: Any) -> bool:
        """Return whether a job ended some time ago; a result can be late on a network file system."""
        return time.monotonic() - self._gone.get(job.job_id, time.monotonic()) > _GONE_S

    def _end_of_log(self, job: Any) -> str:
        try:
            lines = job.paths.stderr.read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return " ".join([line.strip() for line in lines if line.strip()][-2:])


class SlurmJobs(SubmititJobs):
    """Job arrays of Slurm. States are those of ``squeue``, since few clusters keep accounts for ``sacct``."""

    def __init__(self, matrix: Matrix, *, most: int | None, cache_dir: Path | None, environ: Mapping[str, str]) -> None:
        """Check the resources of the matrix; ``most`` is the number of tasks of an array that run at a time.

        Raises:
            SettingsError: submitit or Slurm's commands are missing, or a resource is not an option of sbatch.
        """
        if shutil.which("sbatch") is None:
            raise SettingsError("--on slurm", "sbatch is not installed: this is no submit host of Slurm")
        # submitit has defaults of its own by these names.
        self._options = {name.replace("-", "_"): value for name, value in sbatch_options(matrix).items()}
        self._most = most or _MOST_TASKS
        super().__init__(cache_dir=cache_dir, environ=environ)

    def _submit_array(self, image: str, cells: Sequence[Cell]) -> None:
        with interrupts_later():
            super()._submit_array(image, cells)

    def _executor(self, image: str) -> Any:
        executor = self._api.SlurmExecutor(self.folder, python="python3" if image else None)
        executor.update_parameters(
            # submitit's own defaults would limit a build to 5 minutes, and signal it before the limit.
            time=None,
            wckey=None,
            signal_delay_s=0,
            array_parallelism=self._most,
            additional_parameters=self._options,
            # pyxis and enroot, which most GPU clusters have, run a step in a container.
            use_srun=bool(image),
            srun_args=[f"--container-image={image}"] if image else None,
        )
        return executor

    def _read_states(self) -> Mapping[str, str] | None:
        user = str(os.getuid())
        command = ["squeue", "--noheader", "--array", "--states=all", f"--user={user}", "--format=%i %T"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # no shell
        if done.returncode:
            return None
        return dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if " " in line.strip())

    def _cancel(self, jobs: Sequence[Any]) -> None:
        arrays = sorted(_arrays(jobs))
        command = ["scancel", *arrays]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603  # no shell
        except OSError as error:
            raise CancelError(f"jobs {', '.join(arrays)} were not cancelled: scancel: {error.strerror}") from error
        if done.returncode:
            said = " ".join(done.stderr.split()) or f"scancel ended with {done.returncode}"
            raise CancelError(f"jobs {', '.join(arrays)} may still run: {said}")


def _arrays(jobs: Sequence[Any]) -> set[str]:
    """Return the numbers of jobs, those of an array as one."""
    return {job.job_id.partition("_")[0] for job in jobs}
