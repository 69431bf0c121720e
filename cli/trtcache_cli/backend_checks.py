"""The child process of ``trtcache doctor`` that checks backends: ``python -m trtcache_cli.backend_checks NAME ...``.

It prints a line of JSON for each check, ``{"check": ...}``, and one at the end of each backend, ``{"end": name}``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from trtcache.backends import registry
from trtcache.backends.fitness import Check
from trtcache.errors import BackendUnavailableError


def checks_of(name: str, *, quick: bool) -> Iterator[Check]:
    """Yield the checks of a backend; one that cannot be used at all is ``bad``, with the reason."""
    try:
        yield from registry.load_backend(name).diagnose(quick=quick)
    except BackendUnavailableError as error:
        yield Check(f"backend {name}", "bad", error.why)
    except Exception as error:  # noqa: BLE001  # another distribution's code
        yield Check(f"backend {name}", "bad", f"it fails with {type(error).__name__}: {error}")


def main(args: Sequence[str]) -> int:
    """Print the checks of the named backends."""
    for name in (arg for arg in args if arg != "--quick"):
        for check in checks_of(name, quick="--quick" in args):
            _print({"check": asdict(check)})
        _print({"end": name})
    return 0


def _print(document: object) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
