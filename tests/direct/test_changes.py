"""Changes that affect the exported program are noticed, others are ignored; compared with the slow path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.direct.changes import HIT, MISS, Subject
from tests.direct.package import X, load, tiny, write
from trtcache.cache import Cache
from trtcache.frontends.direct.mode import DirectMode
from trtcache.keys.program_digest import exported_digest
from trtcache.lowering.capture import export

if TYPE_CHECKING:
    from pathlib import Path

    from trtcache.digests import Digest


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the unchanged model is, and nothing else."""
    return tmp_path_factory.mktemp("direct") / "cache"


@pytest.fixture(scope="module")
def base(root: Path, interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> Digest:
    """Compile the unchanged model, and return the digest of its program."""
    load(write(tmp_path_factory.mktemp("base")))
    module = trtcache.compile(tiny(), (X,), backend=interpreter, cache=root, direct="on")
    assert module.report.direct == "miss: no matching manifest"
    return exported_digest(export(tiny(), (X,), {}, None))


@pytest.fixture(scope="module")
def base_key(base: Digest, interpreter: str) -> str:
    """Return the key of the unchanged model's engine."""
    assert base
    return str(trtcache.key(tiny(), (X,), backend=interpreter))


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    """The unchanged model, of a package of this test's own."""
    package = write(tmp_path / "one")
    load(package)
    return Subject(package, monkeypatch, tiny())


def found(subject: Subject, root: Path) -> DirectMode:
    """Return the look-up of a model, which is not exported."""
    examples = (subject.args, subject.kwargs, subject.dynamic_shapes)
    lookup = DirectMode(subject.model, examples, Cache(root), mode="on", name="Tiny")
    lookup.find()
    return lookup


def slowly(subject: Subject) -> Digest:
    """Return the digest of the program that exporting gives."""
    return exported_digest(export(subject.model, subject.args, subject.kwargs, subject.dynamic_shapes))


@pytest.mark.parametrize("name", MISS)
def test_a_change_of_the_program_is_noticed(
    subject: Subject, root: Path, base: Digest, base_key: str, interpreter: str, name: str
) -> None:
    """The manifest of the unchanged model is only found if an export leads to the same engine."""
    MISS[name][0](subject)
    with subject.around():
        lookup = found(subject, root)
        if lookup.manifest is None:
            lookup.explain()
            assert lookup.outcome.startswith(("miss: ", "off: "))
        else:
            assert lookup.manifest.digest == base
            options = {"dynamic_shapes": subject.dynamic_shapes, "backend": interpreter}
            assert str(trtcache.key(subject.model, subject.args, subject.kwargs, **options)) == base_key


@pytest.mark.parametrize("name", HIT)
def test_irrelevant_changes_are_ignored(subject: Subject, root: Path, base: Digest, name: str) -> None:
    """The manifest of the unchanged model is valid, and the slow path gives the same key."""
    HIT[name](subject)
    lookup = found(subject, root)
    assert lookup.manifest is not None, lookup.outcome
    assert slowly(subject) == base


def test_a_hit_has_equal_results(subject: Subject, root: Path, base: Digest, interpreter: str) -> None:
    """It uses the model's own weights and exports nothing, and its report has the route."""
    assert base
    with torch.no_grad():
        for weight in subject.model.parameters():
            weight.mul_(0.5)
    module = trtcache.compile(subject.model, (X,), backend=interpreter, cache=root, direct="on")
    assert (module.report.direct, module.report.route, module.report.export_s) == ("hit", "direct", 0.0)
    assert torch.equal(module(X), subject.model(X))
