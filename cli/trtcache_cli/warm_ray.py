"""``trtcache warm --on ray``: a task of Ray for each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtcache.errors import SettingsError
from trtcache_cli.warm_job import build_cell
from trtcache_cli.warm_jobs import CancelError
from trtcache_cli.warm_run import FAILED, Outcome, build_arguments, last_line, outcome_of

if TYPE_CHECKING:
    from trtcache_cli.matrix import Cell, Matrix

_CANCEL_S = 10.0


class RayJobs:
    """Tasks of Ray, in the cluster of ``RAY_ADDRESS`` or of this host, or else in one that ends with this process.

    A task whose worker or node dies is run again by Ray, ``max_retries`` times.
    """

    def __init__(self, matrix: Matrix, *, cache_dir: Path | None, environ: Mapping[str, str]) -> None:
        """Connect to Ray.

        Raises:
            SettingsError: Ray is not installed or not reached.
        """
        try:
            import ray
        except ImportError as error:
            raise SettingsError("--on ray", "Ray is missing: pip install 'trtcache[ray]'") from error
        self._api: Any = ray
        self._cache_dir, self._environ = cache_dir, dict(environ)
        self._where = f"{matrix.path}: defaults.ray"
        self._options = dict(matrix.resources.get("ray", {}))
        address = self._options.pop("address", None)
        self._tasks: dict[Any, Cell] = {}
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise SettingsError("--on ray", last_line(str(error))) from error

    def submit(self, cells: Sequence[Cell]) -> None:
        """Submit a task for each cell.

        Raises:
            SettingsError: ``[defaults.ray]`` has an option that Ray does not accept.
        """
        task, folder = self._api.remote(build_cell), str(Path.cwd())
        for cell in cells:
            options = {**self._options, "name": f"trtcache warm: {cell}"}
            if cell.image:
                options["runtime_env"] = {**options.get("runtime_env", {}), "image_uri": cell.image}
            arguments = build_arguments(cell, self._cache_dir)
            try:
                self._tasks[task.options(**options).remote(arguments, self._environ, folder)] = cell
            except (TypeError, ValueError) as error:
                raise SettingsError(self._where, " ".join(str(error).split())) from error

    def poll(self) -> list[Outcome]:
        """Return the cells whose tasks have ended."""
        if not self._tasks:
            return []
        ended, _ = self._api.wait(list(self._tasks), num_returns=len(self._tasks), timeout=0)
        return [self._outcome(self._tasks.pop(task), task) for task in ended]

    def states(self) -> Mapping[Cell, str]:
        """Return ``submitted`` for each task that has not ended; only Ray's dashboard shows more."""
        return dict.fromkeys(self._tasks.values(), "submitted")

    def cancel(self) -> int:
        """Interrupt the tasks that have not ended, and kill the workers of those that do not stop.

        Raises:
            CancelError: some have not ended.
        """
        tasks = list(self._tasks)
        for force in (False, True):
            for task in tasks:
                self._api.cancel(task, force=force)
            if tasks:
                _, tasks = self._api.wait(tasks, num_returns=len(tasks), timeout=_CANCEL_S)
        if tasks:
            raise CancelError(f"{len(tasks)} of {len(self._tasks)} tasks may still run: Ray has not ended them")
        return len(self._tasks)

    def close(self) -> None:
        """Disconnect from Ray, and shut it down if it was started here."""
        self._api.shutdown()

    def _outcome(self, cell: Cell, task: Any) -> Outcome:
        try:
            return outcome_of(cell, self._api.get(task))
        except self._api.exceptions.RayError as error:
            return Outcome(cell, FAILED, last_line(str(error)) or type(error).__name__)
