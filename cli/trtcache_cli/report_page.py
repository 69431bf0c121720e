"""The page of ``trtcache report --html``: one file without scripts, and the geometry of its charts.

Charts are stretched to the width of the page, so they have no text in them; axes are labelled in HTML beside them. All
texts are escaped by Jinja2, and control characters, also those that change the direction of a text, by ``printable``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import format_count, format_duration, format_size
from trtcache_cli.output import hits_and_misses, printable
from trtcache_cli.warm_plan import HIT

if TYPE_CHECKING:
    from trtcache.store.record import Record
    from trtcache_cli.kind_sums import Sums
    from trtcache_cli.report_figures import Figures
    from trtcache_cli.report_history import Period
    from trtcache_cli.report_matrix import HeatCell, HeatMap

_TEMPLATES = Path(__file__).parent / "templates"
_LONGEST = 160
_ROWS = 12
_REASONS = 4
_MOST_CELLS = 4000
_POINTS = 120
OTHER: Final = "other reasons"


@frozen_dataclass
class Bar:
    """A rectangle of a chart, in hundredths of its width and height, from the top left corner."""

    left: float
    top: float
    width: float
    height: float
    series: int


@frozen_dataclass
class Column:
    """The bars of one period; ``title`` is what it says in words."""

    title: str
    bars: list[Bar]


@frozen_dataclass
class Chart:
    """Columns over time.

    Attributes:
        series: names of what is stacked, from the bottom.
        columns: oldest first.
        most: the value at the top.
    """

    series: list[str]
    columns: list[Column]
    most: str


@frozen_dataclass
class SumRow:
    """A row of a table of sizes; ``part`` is its size in hundredths of the largest."""

    label: str
    entries: int
    file_bytes: int
    part: float


def render(figures: Figures) -> str:
    """Return the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count_of": format_count,
        "count": lambda value: f"{value:,}",
        "duration": format_duration,
        "hours": _format_hours,
        "size": format_size,
        "text": _shorten,
        "ago": lambda t_ns: format_duration(max(0, figures.now_ns - t_ns) / 1e9),
    }
    reasons = [reason for reason, _ in figures.misses.most_common(_REASONS)]
    heat_rows = _heat_rows(figures.heat)
    return environment.get_template("report.html").render(
        figures=figures,
        title=f"{Path(figures.place).name or figures.place}" if not figures.is_remote else figures.place,
        written=figures.written.strftime("%Y-%m-%d %H:%M UTC"),
        look_ups=_look_up_chart(figures.history.periods, reasons),
        saved=_saved_chart(figures.history.periods),
        reasons=reasons,
        kinds=_sum_rows(figures.kinds),
        models=_sum_rows(figures.models),
        targets=_sum_rows(figures.target_sums),
        ages=_sum_rows(figures.ages),
        curve=_curve(figures),
        slowest=_with_parts(figures.slowest, [record.build_s for record in figures.slowest]),
        heat_rows=heat_rows,
        heat_hidden=0 if figures.heat is None else len(figures.heat.rows) - len(heat_rows),
    )


def _shorten(text: object) -> str:
    """Return a text with control characters escaped, and cut after 160 characters."""
    short = printable(str(text)[: _LONGEST + 1])
    return short if len(short) <= _LONGEST else f"{short[: _LONGEST - 1]}…"


def _format_hours(duration_s: float) -> str:
    """Format a duration; longer ones in hours, which add up."""
    return format_duration(duration_s) if duration_s < 6000 else f"{duration_s / 3600:,.1f} h"


def _look_up_chart(periods: Sequence[Period], reasons: Sequence[str]) -> Chart:
    rows = []
    for period in periods:
        misses = Counter({reason if reason in reasons else OTHER: 0 for reason in period.misses})
        for reason, count in period.misses.items():
            misses[reason if reason in reasons else OTHER] += count
        named = [misses[reason] for reason in reasons]
        parts = [period.hits, *named, *[0] * (_REASONS - len(named)), misses[OTHER]]
        words = ", ".join(f"{count:,} {_shorten(reason)}" for reason, count in misses.most_common())
        counted = hits_and_misses(period.hits, period.misses.total())
        rows.append((f"{_span(period)}: {counted}" + (f" ({words})" if words else ""), parts))
    most = max((period.look_ups for period in periods), default=0)
    has_other = any(parts[-1] for _, parts in rows)
    return Chart(["hits", *reasons, *([OTHER] if has_other else [])], _columns(rows, most), f"{most:,}")


def _saved_chart(periods: Sequence[Period]) -> Chart:
    most = max((period.saved_s for period in periods), default=0.0)
    rows = [(f"{_span(each)}: {format_duration(max(0.0, each.saved_s))} saved", [each.saved_s]) for each in periods]
    return Chart(["time saved"], _columns(rows, most), format_duration(max(0.0, most)))


def _span(period: Period) -> str:
    return f"{period.first}" if period.first == period.last else f"{period.first} to {period.last}"


def _columns(rows: Iterable[tuple[str, Sequence[float]]], most: float) -> list[Column]:
    """Return stacked bars; few of them do not fill the width."""
    rows = list(rows)
    step = 100 / max(len(rows), 7)
    columns = []
    for number, (title, parts) in enumerate(rows):
        bars, top = [], 100.0
        for series, part in enumerate(parts):
            height = 100 * max(0.0, part) / most if most > 0 else 0.0
            top -= height
            if height:
                bars.append(Bar(number * step + step * 0.12, top, step * 0.76, height, series))
        columns.append(Column(title, bars))
    return columns


def _sum_rows(sums: Sums) -> list[SumRow]:
    """Return the largest groups, and the rest as one row."""
    rows = list(sums.items())
    if len(rows) > _ROWS:
        rest = [values for _, values in rows[_ROWS - 1 :]]
        whole = (sum(entries for entries, _ in rest), sum(size_bytes for _, size_bytes in rest))
        rows = [*rows[: _ROWS - 1], (f"{len(rest):,} more", whole)]
    largest = max((size_bytes for _, (_, size_bytes) in rows), default=0) or 1
    return [SumRow(label, entries, size_bytes, 100 * size_bytes / largest) for label, (entries, size_bytes) in rows]


def _with_parts(records: Sequence[Record], values: Sequence[float]) -> list[tuple[Record, float]]:
    largest = max(values, default=0.0) or 1.0
    return [(record, 100 * value / largest) for record, value in zip(records, values, strict=True)]


def _curve(figures: Figures) -> list[tuple[float, float]]:
    """Return how much build time stays (in hundredths, from the top) in how many hundredths of the size.

    Entries are evicted as ``trtcache prune --max-size`` does; pinned ones stay.
    """
    from trtcache.store.catalog import plan_prune

    plan = plan_prune(figures.records, now_ns=figures.now_ns, max_size_bytes=0)
    total_bytes, total_s = figures.stats.file_bytes, sum(record.build_s for record in figures.records)
    if not plan.evict or not total_bytes or not total_s:
        return []
    step = max(1, len(plan.evict) // _POINTS)
    points, left_bytes, left_s = [(100.0, 0.0)], float(total_bytes), total_s
    for number, eviction in enumerate(plan.evict, start=1):
        left_bytes -= eviction.record.file_bytes
        left_s -= eviction.record.build_s
        if number % step == 0 or number == len(plan.evict):
            points.append((100 * left_bytes / total_bytes, 100 - 100 * max(0.0, left_s) / total_s))
    return points[::-1]


def _heat_rows(heat: HeatMap | None) -> list[tuple[str, list[list[HeatCell]]]]:
    """Return the rows of the heat map with the cells of each column; of large ones those that do not hit throughout."""
    if heat is None:
        return []
    rows = list(heat.rows.items())
    if len(heat.cells) > _MOST_CELLS:
        rows = [row for row in rows if any(cell.state != HIT for cells in row[1].values() for cell in cells)]
        rows = rows[: max(1, _MOST_CELLS // len(heat.columns))]
    return [(label, [cells.get(column, []) for column in heat.columns]) for label, cells in rows]
