"""The checks of ``trtcache doctor`` and the self-test of AOTInductor."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trtcache.backends.diagnosis import Check, SelfTest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ASK_S = 10.0


def compiler() -> Check:
    """Find the C++ compiler that AOTInductor would use."""
    named = os.environ.get("CXX")
    for candidate in [named] if named else ["g++", "clang++", "c++"]:
        if path := shutil.which(candidate):
            return Check("c++ compiler", "ok", f"{_version_line(path)} at {path}")
    advice = "install g++: AOTInductor builds need a C++ compiler; hits do not"
    return Check("c++ compiler", "missing", f"{named or 'g++'} not found", advice)


def _version_line(path: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603  # a found compiler
            [path, "--version"], capture_output=True, text=True, timeout=_ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def diagnose(*, quick: bool) -> Iterator[Check]:
    """Yield whether there is a compiler, and unless ``quick`` whether packages can be built, loaded and run."""
    found = compiler()
    yield found
    name = "backend aot_inductor"
    if found.status != "ok":
        yield Check(name, "missing", "can load and refit, cannot build", "install a C++ compiler")
        return
    yield Check(name, "ok", "can build, load, refit")
    if not quick:
        from trtcache.backends.aot_inductor.tiny_package import check_tiny_package

        yield check_tiny_package()


@dataclass(frozen=True)
class PackageSelfTest(SelfTest):
    """The self-test of packages."""

    def facts(self) -> Mapping[str, str]:
        """Return the C++ compiler."""
        return {"C++ compiler": compiler().found.partition(" at ")[0]}
