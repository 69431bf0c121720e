"""Progress of ``trtcache warm`` on standard error: a live table on a terminal, a line for each cell otherwise."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING

from trtcache.config.units import format_duration
from trtcache_cli.output import complain, console, note, printable, shows_progress

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from trtcache_cli.matrix import Cell
    from trtcache_cli.warm_run import Outcome

_MOST_ROWS = 12
_WAITING = ("", "pending", "submitted")  # states of cells that have no row of their own


class Board:
    """What is known of cells while they are built. Use it in a ``with`` block."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._states: dict[Cell, tuple[str, float]] = {}
        self._ended: Counter[str] = Counter()
        self._live: Live | None = None

    def __enter__(self) -> Board:
        """Show the table, if standard error is a terminal."""
        if shows_progress():
            from rich.live import Live

            self._live = Live(
                console=console(stderr=True),
                get_renderable=self._render,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove the table."""
        if self._live is not None:
            self._live.stop()

    def set_state(self, cell: Cell, state: str) -> None:
        """Show the state of a cell that has not ended, in the scheduler's word for it."""
        before, since_s = self._states.get(cell, ("", 0.0))
        self._states[cell] = (state, since_s if state == before else time.monotonic())

    def end(self, outcome: Outcome) -> None:
        """Show the outcome of a cell."""
        self._states.pop(outcome.cell, None)
        self._ended[outcome.outcome] += 1
        if self._live is None:
            (complain if outcome.why else note)(f"cell {outcome}")
        else:
            self._live.console.print(f"cell {outcome}", markup=False)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        states, now_s = list(self._states.items()), time.monotonic()
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("cell", justify="right")
        table.add_column("engine", no_wrap=True)
        table.add_column("state")
        table.add_column("time", justify="right")
        shown = [(cell, *state) for cell, state in states if state[0] not in _WAITING]
        for cell, state, since_s in shown[:_MOST_ROWS]:
            row = (str(cell.number), printable(str(cell)), printable(state), format_duration(now_s - since_s))
            table.add_row(*map(Text, row))
        if len(shown) > _MOST_ROWS:
            table.add_row("", f"{len(shown) - _MOST_ROWS} more", "", "")
        counts = self._ended + Counter(state or "waiting" for _, (state, _) in states)
        done = sum(self._ended.values())
        words = ", ".join(f"{count} {name}" for name, count in counts.items())
        bar = ProgressBar(total=max(1, self._total), completed=done, width=40)
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_row(bar, Text(f"{done} of {self._total}" + (f": {words}" if words else "")))
        return Group(*([table] if shown else []), line)
