"""Quick compilation of Inductor's C++ code: fewer probes and headers, two files at a time, and how long each step took.

Nothing here changes the code of a package, so nothing is part of a key:

- Inductor probes each vector instruction set of the processor by compiling a library with torch's headers, which it
  loads in a new Python process: 3 to 28 s in the first build on a machine. Here the package is the probe: it has the
  same flags and headers, and it is loaded after it is built. Only if that fails, Inductor's own probes are run, and if
  they choose other instructions the package is built again. torch reads the processor's instruction sets, as ever, and
  the compiler is asked whether it knows their flags.
- Two precompiled headers take 16 s of CPU time to make, and save 4 s of a build. They are used if they exist, and made
  if many builds follow.
- The wrapper and the kernels are compiled at the same time, and without warnings: Inductor drops several thousand lines
  of them, about torch's headers.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from concurrent.futures import Future

IMPORT, PROBE, CODEGEN, COMPILE, LINK = STEPS = ("import", "probe", "codegen", "compile", "link")
"""Steps of a build: import Inductor, choose the instruction set, and run Inductor, the C++ compiler and the linker."""

HEADERS = "aot_inductor.precompile_headers"
"""Inductor's option for precompiled headers."""

Build: TypeAlias = "Callable[[Any], None]"
Check: TypeAlias = "Callable[[Any, str], bool]"

_MANY_BUILDS = 4
"""So many builds of a process without precompiled headers lose as many seconds as it takes to make those."""

_WRAPPER = ".wrapper"  # the end of the name of the wrapper's source, without .cpp

_COMPILATION: ContextVar[PackageCompilation | None] = ContextVar("trtcache.compilation", default=None)
_known_flags: dict[tuple[str, str], bool] = {}  # compiler and flags of an instruction set -> whether it knows them
_builds = 0


class PackageCompilation:
    """The C++ compilation of one package.

    Attributes:
        assumes: whether to assume that the compiler and torch support the processor's instruction sets.
        assumed: the instruction set that was chosen so; empty if nothing was assumed.
        makes_headers: whether to make precompiled headers that do not exist.
        has_failed: whether the compiler, the linker or the loader failed.
        steps: seconds of each step, by its name.
    """

    def __init__(self, *, assumes: bool, makes_headers: bool, pool: ThreadPoolExecutor | None) -> None:
        """Start a compilation; the wrapper is compiled in the pool, if there is one."""
        self.assumes, self.assumed = assumes, ""
        self.makes_headers = makes_headers
        self.has_failed = False
        self.steps: defaultdict[str, float] = defaultdict(float)
        self._pool = pool
        self._wrapper: Future[None] | None = None

    @contextmanager
    def time(self, step: str) -> Iterator[None]:
        """Add the seconds of the block to a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.steps[step] += time.perf_counter() - start

    def add(self, steps: Mapping[str, float]) -> None:
        """Add the seconds of another compilation."""
        for name, seconds in steps.items():
            self.steps[name] += seconds

    def run(self, build: Build, builder: Any) -> None:
        """Run one command of the compiler.

        The wrapper's returns at once, and the command after it, which compiles the kernels, waits for both: until then
        Inductor neither reads nor writes their files.
        """
        if builder._precompiling and not self.makes_headers:
            return  # without a precompiled header the compiler includes the header itself
        if not builder._do_link:
            builder._cflags_args += " -w "
        if self._pool and builder._compile_only and builder._name.endswith(_WRAPPER) and self._wrapper is None:
            self._wrapper = self._pool.submit(copy_context().run, build, builder)
            return
        wrapper, self._wrapper = self._wrapper, None
        self.has_failed = True  # until it has not
        with self.time(LINK if builder._do_link else COMPILE):
            try:
                build(builder)
            finally:
                if wrapper is not None:
                    wait([wrapper])
            if wrapper is not None:
                wrapper.result()
        self.has_failed = False

    def supports(self, check: Check, build: Build, isa: Any, code: str) -> bool:
        """Return whether the compiler and torch support an instruction set, which ``code`` uses."""
        token = _COMPILATION.set(None)  # the compiler's seconds are those of the probe
        try:
            with self.time(PROBE):
                if not self.assumes:
                    return check(isa, code)
                if code == isa._avx_code:  # it uses torch's headers and libraries, as the package does
                    self.assumed = str(isa)
                    return True
                return _knows_flags(build, isa)
        finally:
            _COMPILATION.reset(token)


def _knows_flags(build: Build, isa: Any) -> bool:
    """Return whether the compiler knows the flags of an instruction set: GCC 12 does not know AMX-FP16's.

    Inductor compiles intrinsics, too, whose header takes 0.3 s. A compiler that knows the flags has them.
    """
    from torch._inductor import cpp_builder
    from torch._inductor.exc import CppCompileError

    key = (cpp_builder.get_cpp_compiler(), isa.build_arch_flags())
    if key not in _known_flags:
        with tempfile.TemporaryDirectory(prefix="trtcache-probe-") as folder:
            source = Path(folder) / "probe.cpp"
            source.touch()
            options = cpp_builder.CppTorchOptions(vec_isa=isa, warning_all=False, compile_only=True)
            try:
                build(cpp_builder.CppBuilder("probe", [str(source)], options, folder))
            except CppCompileError:
                _known_flags[key] = False
            else:
                _known_flags[key] = True
    return _known_flags[key]


@contextmanager
def quick_compilation(options: Mapping[str, object], *, assumes: bool = True) -> Iterator[PackageCompilation]:
    """Compile quickly in this thread for the duration of the block. The caller MUST hold ``TORCH_LOCK``.

    Args:
        options: Inductor's options for the build.
        assumes: whether to assume that the compiler and torch support the processor's instruction sets. What Inductor
            has probed before in this process is used instead.
    """
    from torch._inductor import codecache, config, cpp_builder, cpu_vec_isa

    global _builds
    _builds += 1
    has_probed = cpu_vec_isa.valid_vec_isa_list.cache_info().currsize > 0
    makes_headers = options.get(HEADERS, _builds > _MANY_BUILDS) is True
    builders: Any = cpp_builder.CppBuilder
    instruction_sets: Any = cpu_vec_isa.VecISA
    build, check = builders.build, instruction_sets.check_build

    def quick_build(builder: Any) -> None:
        current = _COMPILATION.get()  # None in other threads, which may use torch.compile
        build(builder) if current is None else current.run(build, builder)

    def quick_check(isa: Any, code: str) -> bool:
        current = _COMPILATION.get()
        return check(isa, code) if current is None else current.supports(check, build, isa, code)

    with ThreadPoolExecutor(1) as pool:
        compilation = PackageCompilation(
            assumes=assumes and not has_probed,
            makes_headers=makes_headers,
            pool=pool if (config.compile_threads or 1) > 1 else None,
        )
        token, start = _COMPILATION.set(compilation), time.perf_counter()
        builders.build, instruction_sets.check_build = quick_build, quick_check
        try:
            yield compilation
        finally:
            try:
                if compilation.assumed:
                    compilation.assumed = choose_instructions(options)
            finally:
                builders.build, instruction_sets.check_build = build, check
                _COMPILATION.reset(token)
                if compilation.assumed:
                    _forget_probes()  # other users of Inductor assume nothing
            if not makes_headers:
                codecache._precompile_header.cache_clear()  # it remembers headers that were not made
            compilation.steps[CODEGEN] += time.perf_counter() - start - sum(compilation.steps.values())


def choose_instructions(options: Mapping[str, object]) -> str:
    """Return the instruction set that Inductor chooses, with its compiler flags."""
    from torch._inductor import config
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    with config.patch(dict(options)):
        isa = pick_vec_isa()
    return f"{isa} ({isa.build_arch_flags()})"


def _forget_probes() -> None:
    """Let Inductor probe instruction sets again. It remembers them in several caches and attributes."""
    from torch._inductor import cpu_vec_isa

    owners: list[Any] = [cpu_vec_isa.VecISA]
    for owner in owners:  # and their subclasses, which are appended meanwhile
        owners += owner.__subclasses__()
    for remembered in (cpu_vec_isa.valid_vec_isa_list, *(value for owner in owners for value in vars(owner).values())):
        if hasattr(remembered, "cache_clear"):
            remembered.cache_clear()
    for isa in cpu_vec_isa.supported_vec_isa_list:
        for extension in ("_is_avx512_bf16_supported", "_is_amx_fp16_supported"):
            vars(isa).pop(extension, None)  # then the class's holds, which is False


def header_options() -> dict[str, bool]:
    """Return Inductor's option for precompiled headers: off, unless they exist or many builds follow."""
    from torch._inductor import codecache

    exist = any(Path(codecache._HEADER_DIR).glob("*.[gp]ch"))
    return {} if exist or _builds >= _MANY_BUILDS else {HEADERS: False}
