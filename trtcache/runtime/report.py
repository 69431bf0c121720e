"""Reports of ``compile`` and ``refit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trtcache.config.frozen import frozen_dataclass
from trtcache.config.units import format_duration
from trtcache.digests import CacheKey
from trtcache.settings import AUTO, PACKED

if TYPE_CHECKING:
    from trtcache.errors import CanonicalizationError
    from trtcache.lowering.interface import FixedSize
    from trtcache.partition.division import LeftInTorch
    from trtcache.store.contract import Entry

_SHOWN = 6


@frozen_dataclass
class BuildDetails:
    """How an engine was built; without content if it was not built now.

    Attributes:
        why: the nearest stored entry and the difference.
        steps: seconds of the steps of the build, by name.
    """

    why: str = ""
    steps: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class PartitionReport:
    """One engine of a compiled module.

    Attributes:
        key: its cache key; None for a program that cannot be cached.
        outcome: ``hit``, ``built``, ``carried`` in the file of a loaded program, or ``eager`` if it runs in torch
            because another process is building the engine.
        reason: why it was built (``absent``, ``corrupt:member``, ``uncacheable: ...``, ...) or runs in torch
            (``busy``); empty for a hit, unless its plan was built for another product of the GPU's compute capability.
        weights: the number of weights set.
        fetch_s: seconds to find, read and verify the artifact.
        load_s: seconds to create a live engine, weights included.
        build_s: seconds of the build: this one, or for a hit the saved one.
        path: the artifact file, or None if it could not be stored.
        why: for a miss, what was wrong with the stored entry, or else the nearest other one and the difference; empty
            without any.
        origin: ``remote`` for a hit that this compile fetched from a remote, otherwise empty.
        build_steps: seconds of the steps of this build, by name: for ``aot_inductor`` ``import``, ``probe`` (the choice
            of instruction sets), ``codegen``, ``compile`` and ``link``. Empty for a hit, and for other backends.
        unstored: why what was built could not be stored, such as ``No space left on device``; empty if it was.
    """

    key: CacheKey | None
    outcome: str
    reason: str
    weights: int
    fetch_s: float
    load_s: float
    build_s: float
    path: str | None
    why: str = ""
    origin: str = ""
    build_steps: Mapping[str, float] = field(default_factory=dict)
    unstored: str = ""

    @classmethod
    def of(
        cls,
        entry: Entry,
        *,
        key: CacheKey | CanonicalizationError,
        weights: int,
        details: BuildDetails | None = None,
        load_s: float = 0.0,
    ) -> PartitionReport:
        """Return the report on the entry of an engine.

        Args:
            entry: the entry.
            key: the engine's cache key, or the reason that it has none.
            weights: the number of its weights.
            details: those of its build; None for a hit.
            load_s: seconds that loading took.
        """
        details = details or BuildDetails()
        return cls(
            key=entry.key if isinstance(key, CacheKey) else None,
            outcome=entry.outcome,
            reason=entry.reason or "",
            weights=weights,
            fetch_s=entry.load_s,
            load_s=load_s,
            build_s=entry.build_s,
            path=str(entry.path) if entry.path else None,
            why=details.why,
            origin=entry.origin,
            build_steps=details.steps,
            unstored=entry.unstored,
        )

    @property
    def frozen(self) -> int:
        """How many of the model's weights are frozen in the artifact; other values need another entry."""
        parts = self.key.parts if self.key else None
        found = parts.get("frozen") if isinstance(parts, dict) else None
        return len(found) if isinstance(found, list) else 0

    @property
    def packed(self) -> bool:
        """Whether the engine takes packed copies of weights."""
        parts = self.key.parts if self.key else None
        settings, target = (parts.get("settings"), parts.get("target")) if isinstance(parts, dict) else (None, None)
        if self.key is None or not isinstance(settings, dict) or not isinstance(target, dict):
            return False
        weights = settings.get("weights")
        if weights == AUTO:
            from trtcache.backends.registry import load_backend  # only where the backend chose

            weights = load_backend(self.key.kind).choose_weights(AUTO, str(target.get("device")))
        return bool(weights == PACKED)

    def rows(self) -> list[str]:
        """Return what a printed report says of this engine, one text for each line."""
        built = f"build {format_duration(self.build_s)}" + (" saved" if self.outcome == "hit" else "")
        reason = self.reason or self.origin
        why = f" ({reason})" if reason else ""
        key = self.key.digest[:12] if self.key else "without key "
        rows = [
            f"  {key}  {self.outcome}{why:<10}  {self.weights} weights  "
            f"fetch {format_duration(self.fetch_s)}  load {format_duration(self.load_s)}  {built}"
        ]
        if self.build_steps:
            steps = (f"{name} {format_duration(seconds)}" for name, seconds in self.build_steps.items())
            rows.append(f"  build: {', '.join(steps)}")
        if self.unstored:
            rows.append(f"  not stored: {self.unstored}")
        if self.frozen:
            rows.append(f"  frozen: it has the values of {self.frozen} weights in it, and other values need another")
        if self.packed:
            rows.append("  packed: it takes packed copies of weights, which are made at load and at a refit")
        if self.why:
            rows.append(f"  {self.why}")
        return rows


@dataclass(slots=True)
class Report:
    """The result of ``compile`` for a whole model. Printing it gives a small table.

    Attributes:
        name: the program's name.
        backend: the backend of the engines.
        target: the target that they run on.
        partitions: one for each engine.
        route: ``program`` for a program file with its engines, ``lowered``, ``read`` for an ONNX file, ``alias`` where
            a key alias led to the key, so that nothing was lowered or parsed, and of a file nothing exported, or
            ``direct`` where a module was not exported either.
        file_s: seconds to open, map and hash the file.
        alias_s: seconds to find, read and verify the key alias, and for a program in memory to compute its digest.
        alias_saved_s: seconds of lowering, and for a file of export, that the key alias saved, as measured when it was
            stored.
        export_s, decompose_s, lower_s, key_s: seconds of ``torch.export``, of its decompositions, of the passes, and of
            the key.
        compile_s: seconds of the whole call of ``compile``.
        import_s: seconds that the first ``trtcache.compile`` of a process took to be imported, before the call.
        overlapped_s: seconds that builds in several processes saved by running at the same time.
        left: the operators that stay in torch, and why.
        direct: the result of direct mode: ``hit``, or ``miss:`` or ``off:`` with the reason; empty unless given a
            module.
        direct_s: seconds to fingerprint the module and to check its manifest.
        guards: the program's guards: conditions on the sizes of its arguments, checked on each call.
        fixed_sizes: the sizes for which ``Dim.AUTO`` was given and which torch fixed: other sizes are refused.
        torch: ``not used`` for a program that was loaded without torch; why torch was imported, if the process had not
            imported it; else empty.
        background: what became of a build in the background, or why calls run in torch for good; empty without one.
        programs: reports of further programs that ``on_guard="compile"`` compiled for calls that the guards reject.
    """

    name: str
    backend: str
    target: str
    partitions: list[PartitionReport] = field(default_factory=list)
    export_s: float = 0.0
    decompose_s: float = 0.0
    lower_s: float = 0.0
    key_s: float = 0.0
    compile_s: float = 0.0
    overlapped_s: float = 0.0
    route: str = "lowered"
    file_s: float = 0.0
    alias_s: float = 0.0
    alias_saved_s: float = 0.0
    left: tuple[LeftInTorch, ...] = ()
    direct: str = ""
    direct_s: float = 0.0
    guards: tuple[str, ...] = ()
    fixed_sizes: tuple[FixedSize, ...] = ()
    programs: list[Report] = field(default_factory=list)
    torch: str = ""
    import_s: float = 0.0
    background: str = ""

    @property
    def outcome(self) -> str:
        """The outcome of all engines, which is ``hit`` if each is one, ``built`` if one was built.

        It is ``eager`` where calls run in torch: during a build in the background, and without any engine.
        """
        outcomes = {partition.outcome for partition in self.partitions}
        return next((outcome for outcome in ("eager", "built", "carried", "hit") if outcome in outcomes), "eager")

    @property
    def why(self) -> str:
        """Why it missed or runs in torch, with the nearest stored entry and the difference; empty for a hit."""
        missed = "; ".join(one.why for one in self.partitions if one.why)
        return missed or ("" if self.partitions else self.background)

    @property
    def saved_s(self) -> float:
        """Build seconds that hits saved, which are those of their builds less those of finding and loading them."""
        hits = [one for one in self.partitions if one.outcome == "hit"]
        return sum(max(0.0, one.build_s - one.fetch_s - one.load_s) for one in hits)

    @property
    def overhead_s(self) -> float:
        """Seconds of ``compile`` without export, decompositions and builds, which is the cost of trtcache itself."""
        built_s = 0.0 if self.background else sum(one.build_s for one in self.partitions if one.outcome == "built")
        return max(0.0, self.compile_s - self.export_s - self.decompose_s - (built_s - self.overlapped_s))

    @property
    def rest_s(self) -> float:
        """Overhead seconds in no other field, such as for opening the cache and creating the module."""
        parts_s = (
            self.file_s
            + self.direct_s
            + self.alias_s
            + self.lower_s
            + self.key_s
            + sum(one.fetch_s + one.load_s for one in self.partitions)
        )
        return max(0.0, self.overhead_s - parts_s)

    def __str__(self) -> str:
        rows = [f"{self.name}: {self.backend} for {self.target}"]
        for partition in self.partitions:
            rows += partition.rows()
        if self.left:
            from trtcache.partition.division import summarize_left  # programs without torch have none

            rows += [f"  in torch: {words}" for words in summarize_left(self.left)]
        rows += [f"  guard: {guard}" for guard in self.guards[:_SHOWN]]
        if (more := len(self.guards) - _SHOWN) > 0:
            rows.append(f"  guard: and {more} more (report.guards)")
        rows += [f"  fixed: {one}" for one in self.fixed_sizes]
        rows += [f"  and for other sizes: {one.name}, {', '.join(one.guards) or 'no guards'}" for one in self.programs]
        if self.torch:
            rows.append(f"  torch: {self.torch}")
        if self.background:
            rows.append(f"  background: {self.background}")
        if self.direct and self.direct != "hit":
            rows.append(f"  direct mode: {self.direct}")
        imports = f"  imports {format_duration(self.import_s)}" if self.import_s else ""
        rest = f"rest {format_duration(self.rest_s)}{imports}  saved {format_duration(self.saved_s)}"
        rows.append(f"  {self._route_text}  {rest}")
        return "\n".join(rows)

    @property
    def _route_text(self) -> str:
        """How the key was found, with the seconds of each step."""
        file = f"file {format_duration(self.file_s)}  " if self.file_s else ""
        if self.route == "direct":
            instead = f"instead of {format_duration(self.alias_saved_s)} of export, decompositions and lowering"
            return f"direct {format_duration(self.direct_s)}  key alias {format_duration(self.alias_s)} {instead}"
        if self.route == "alias":
            saved = format_duration(self.alias_saved_s)
            if self.export_s:
                way = f"export {format_duration(self.export_s)}  key alias {format_duration(self.alias_s)}"
                return f"{way} instead of {saved} of decompositions and lowering"
            return f"{file}key alias {format_duration(self.alias_s)} instead of {saved} of export and lowering"
        if self.route == "program":
            return f"{file}loaded with its engines"
        if self.route == "read":
            return f"{file}reading {format_duration(self.lower_s)}  key {format_duration(self.key_s)}"
        return (
            f"{file}export {format_duration(self.export_s)}  decompositions {format_duration(self.decompose_s)}  "
            f"lowering {format_duration(self.lower_s)}  key {format_duration(self.key_s)}"
        )


@frozen_dataclass
class RefitReport:
    """The result of a refit. Printing it gives a line or two.

    Attributes:
        weights: the number of the engine's weights.
        changed: the weights whose values changed, by the model's names; several for one computed from several.
        shared: how many the engine reads from the given model's or file's memory.
        in_place: whether calls waited while weights were overwritten, instead of new ones being allocated.
        off_by: the largest error against eager that ``verify`` found, relative to the largest value; None without it.
        refit_s: seconds of the whole refit.
    """

    weights: int
    changed: tuple[str, ...]
    shared: int
    in_place: bool = False
    off_by: float | None = None
    refit_s: float = 0.0

    @property
    def unchanged(self) -> int:
        """How many weights kept their values."""
        return self.weights - len(self.changed)

    def __str__(self) -> str:
        shown = ", ".join(self.changed[:_SHOWN]) + (
            f", and {more} more" if (more := len(self.changed) - _SHOWN) > 0 else ""
        )
        how = f"{self.shared} shared" + (", the others written in place" if self.in_place else "")
        verified = "" if self.off_by is None else f", off by {self.off_by:.1e} from eager"
        counts = f"refitted in {format_duration(self.refit_s)}: {len(self.changed)} of {self.weights} weights changed"
        return f"{counts} ({how}{verified})" + (f"\n  {shown}" if shown else "")
