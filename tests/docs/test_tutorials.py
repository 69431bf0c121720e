"""The tutorials and the examples do what they show, in an empty folder, as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.conftest import environ_untraced
from tests.documents import ROOT, console, python_blocks, shape
from tests.remote.conftest import free_port, moto  # noqa: F401  # a fixture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.slow


@pytest.fixture
def script(tmp_path: Path, python: str) -> Callable[..., str]:
    """Run a script of bash in an empty folder that is the user's home; return what it prints, errors too."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, module in (("python", ""), ("trtcache", "-m trtcache_cli"), ("uvicorn", "-m uvicorn")):
        program = sys.executable if name == "uvicorn" else python  # it is stopped by a signal
        (commands / name).write_text(f'#!/bin/sh\nexec {program} -W ignore {module} "$@"\n')
        (commands / name).chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    sources = [str(ROOT), str(ROOT / "cli"), str(ROOT / "migrations"), os.environ.get("PYTHONPATH", "")]

    def run(text: str, **variables: str) -> str:
        environment = environ_untraced() | {"HOME": str(home), "PYTHONPATH": ":".join(sources), **variables}
        environment["PATH"] = f"{commands}:{environment['PATH']}"
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            environment.pop(name, None)
        command = ["bash", "-eu", "-c", text]
        done = subprocess.run(
            command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.replace(str(home), "~")

    return run


def follow(name: str, run: Callable[..., str], *changes: tuple[str, str]) -> None:
    """Type all commands of a tutorial, and find each line that it shows."""
    shown = [line for times in console(name).values() for lines in times for line in lines if line != "..."]
    text = "\n".join(re.findall(r"^\$ (.*)$", (ROOT / name).read_text(), re.MULTILINE))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    printed = [shape(line) for line in run(text).splitlines()]
    assert [line for line in shown if shape(line) not in printed] == [], printed


def test_a_model_server(script: Callable[..., str], tmp_path: Path) -> None:
    """It builds, starts from the cache with builds forbidden, answers, and takes new weights on a signal."""
    pytest.importorskip("fastapi", reason="the examples' libraries: pip install 'trtcache[examples]'")
    shutil.copy(EXAMPLES / "server" / "server.py", tmp_path / "home")
    follow("docs/tutorial-server.md", script, ("8000", str(free_port())))


def test_continuous_integration(script: Callable[..., str], tmp_path: Path, moto: int) -> None:  # noqa: F811
    """The tutorial's commands, and then those of the workflow, with the engine that the tutorial built."""
    home = tmp_path / "home"
    for name in ("models.py", "engines.toml"):
        shutil.copy(EXAMPLES / "ci" / name, home)
    follow("docs/tutorial-ci.md", script)
    jobs = yaml.safe_load((EXAMPLES / "ci" / "engines.yml").read_text())["jobs"]
    build, test = (job["steps"][-1]["run"] for job in (jobs["build"], jobs["test"]))
    script(f"curl -s -X PUT http://127.0.0.1:{moto}/farm -H '{_SIGNED}'")
    variables = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "TRTCACHE_DIR": str(home / "engines")}
    key = (home / "main" / "trtcache" / "keys" / "ci-main.secret").read_text()
    trusted = script("XDG_CONFIG_HOME=$PWD/pull-request trtcache trust ls").split()
    variables["TRTCACHE_TRUSTED_KEYS"] = f"{trusted[0]}:{trusted[1]}"
    remote = f"s3://farm/ci?endpoint=http://127.0.0.1:{moto}"
    script(build, SIGNING_KEY=key, REMOTE=remote, **variables)
    printed = script(
        test, **variables | {"TRTCACHE_DIR": str(home / "runner"), "TRTCACHE_REMOTE": remote}, TRTCACHE_FORBID_BUILD="1"
    )
    assert "hit" in printed

    # A new key: the main branch trusts only this one, builds again, and replaces the remote's entries.
    keygen = script("XDG_CONFIG_HOME=$PWD/main trtcache trust keygen ci-main-2").splitlines()
    (variables["TRTCACHE_TRUSTED_KEYS"],) = (line for line in keygen if line.startswith("ci-main-2:"))
    key = (home / "main" / "trtcache" / "keys" / "ci-main-2.secret").read_text()
    second = {"TRTCACHE_DIR": str(home / "second")}
    assert "1 built" in script(build, SIGNING_KEY=key, REMOTE=remote, **variables | second)
    third = {"TRTCACHE_DIR": str(home / "third"), "TRTCACHE_REMOTE": remote}
    assert "1 hit" in script(test, **variables | third, TRTCACHE_FORBID_BUILD="1")


_SIGNED = (
    "Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


def test_a_farm_with_a_remote(script: Callable[..., str], tmp_path: Path, moto: int) -> None:  # noqa: F811
    """One host builds and uploads, another hits."""
    (program,) = python_blocks((ROOT / "docs" / "tutorial-farm.md").read_text())
    (tmp_path / "home" / "job.py").write_text(program)
    follow("docs/tutorial-farm.md", script, ("127.0.0.1:9100", f"127.0.0.1:{moto}"))


@pytest.mark.parametrize(
    "program", ["torch_compile/compiled.py", "cpp_builder/kernels.py", "pipeline/sentiment.py"], ids=lambda name: name
)
def test_an_example_builds_once(program: str, script: Callable[..., str]) -> None:
    """The first run builds, and the second one hits."""
    command = f"python {EXAMPLES / program}"
    assert "built" in script(command)
    assert "hit" in script(command, TRTCACHE_FORBID_BUILD="1")
