"""Run attacks, all or those named: ``python -m attacks [NAME]...``. Exits with 1 if one succeeds."""

from __future__ import annotations

import logging
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from attacks import NAMES
from attacks.stage import Succeeded


def main(names: list[str]) -> int:
    """Run each in a folder of its own and print what happened."""
    logging.disable()
    code = 0
    for name in names or NAMES:
        with tempfile.TemporaryDirectory(prefix="trtcache-attack-") as folder:
            try:
                print(f"{name}: failed, as it has to: {import_module(f'attacks.{name}').attack(Path(folder))}")
            except Succeeded as breach:
                print(f"{name}: SUCCEEDED: {breach}")
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
