"""Nothing of a program is used before somebody vouches for it."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from typing import TYPE_CHECKING

import pytest
import torch

import trtcache
from tests.bundle.archives import header_of, rewritten
from trtcache.bundle.archive import HEADER, ProgramHeader
from trtcache.config.signing_keys import SecretKey
from trtcache.errors import (
    ExportError,
    MissingEngineError,
    NotAProgramError,
    ProgramVersionError,
    SettingsError,
    TamperedProgramError,
    UntrustedProgramError,
)

if TYPE_CHECKING:
    from pathlib import Path

X = torch.ones(3, 4)


def test_a_program_that_nobody_signed_is_refused(program: Path) -> None:
    """The message names both ways: a trusted key, and to say that the file is one's own."""
    with pytest.raises(UntrustedProgramError, match=r"TRTCACHE_TRUSTED_KEYS.*trust='local-file'") as caught:
        trtcache.load(program)
    assert (caught.value.reason, caught.value.exit_code) == ("unsigned", 3)


def test_a_signature_counts_by_the_environment_or_the_call(
    compiled: trtcache.CompiledModule, key: SecretKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program whose signer's key is trusted is loaded without a further word."""
    path = tmp_path / "signed.pt2"
    assert trtcache.export(compiled, path).signer == "ci"
    with pytest.raises(UntrustedProgramError) as caught:
        trtcache.load(path)
    assert caught.value.reason == "unknown-key"
    assert torch.equal(trtcache.load(path, trust=str(key.public))(X), compiled(X))
    monkeypatch.setenv("TRTCACHE_TRUSTED_KEYS", str(key.public))
    assert torch.equal(trtcache.load(path)(X), compiled(X))


def test_another_keys_signature_does_not_count(
    compiled: trtcache.CompiledModule, key: SecretKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does one that has expired, or that of a trusted key if others are given."""
    trtcache.export(compiled, tmp_path / "signed.pt2")
    monkeypatch.setenv("TRTCACHE_TRUSTED_KEYS", str(key.public))
    other = SecretKey.generate("ci")
    for trusted, reason in ((f"{other.public}", "unknown-key"), (f"{key.public}:2001-01-01", "expired-key")):
        with pytest.raises(UntrustedProgramError) as caught:
            trtcache.load(tmp_path / "signed.pt2", trust=trusted)
        assert caught.value.reason == reason


@pytest.mark.usefixtures("key")
def test_a_signed_header_cannot_be_changed(compiled: trtcache.CompiledModule, key: SecretKey, tmp_path: Path) -> None:
    """Whoever changes a digest or a name in a header breaks its signature."""
    path = tmp_path / "signed.pt2"
    trtcache.export(compiled, path)
    changed = {**header_of(path), "name": "Other"}
    rewritten(path, {HEADER: json.dumps(changed).encode()})
    with pytest.raises(UntrustedProgramError) as caught:
        trtcache.load(path, trust=str(key.public))
    assert caught.value.reason == "bad-signature"


@pytest.mark.parametrize("member", ["models/model.json", "trtcache/program.json", "data/weights/weight_0"])
def test_a_member_is_the_one_of_its_digest(program: Path, member: str) -> None:
    """Changed bytes of the graph, the program and a weight are found, with checksums that fit them."""
    with zipfile.ZipFile(program) as archive:
        content = bytearray(archive.read(f"program/{member}"))
    content[len(content) // 2] ^= 1
    rewritten(program, {member: bytes(content)})
    with pytest.raises(TamperedProgramError, match="digest"):
        trtcache.load(program, trust="local-file")


def test_nothing_is_unpickled(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither pickle nor torch.load is called, and there is nothing in the file that they could read."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("unpickled")

    for owner, name in ((pickle, "loads"), (pickle, "load"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(owner, name, never)
    trtcache.load(program, trust="local-file")
    with zipfile.ZipFile(program) as archive:
        assert not any(archive.read(info).startswith((b"\x80\x02", b"PK")) for info in archive.infolist())


def test_a_later_format_says_what_to_do(program: Path) -> None:
    """The version stands before all that another format could have otherwise."""
    rewritten(program, {HEADER: b'{"format":2,"anything":[]}'})
    with pytest.raises(ProgramVersionError, match="upgrade trtcache"):
        trtcache.load(program, trust="local-file")


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    """A program of torch's, another archive, a text, a folder and a pipe are no programs with engines."""
    exported = torch.export.export(torch.nn.Linear(4, 4), (X,))
    torch.export.save(exported, tmp_path / "torchs.pt2")
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as archive:
        archive.writestr("folder/member", b"content")
    (tmp_path / "text.pt2").write_text("a text")
    (tmp_path / "empty.pt2").touch()
    (tmp_path / "folder.pt2").mkdir()
    os.mkfifo(tmp_path / "pipe.pt2")
    for name in ("torchs", "other", "text", "empty", "folder", "pipe"):
        with pytest.raises(NotAProgramError):
            trtcache.load(tmp_path / f"{name}.pt2", trust="local-file")
    with pytest.raises(NotAProgramError, match=r"trtcache\.compile"):
        trtcache.load(tmp_path / "torchs.pt2", trust="local-file")


def test_trust_has_few_words(program: Path) -> None:
    """A misspelt word is no trust."""
    for word in ("local", "", "yes", 1, ["local-file"]):
        with pytest.raises(SettingsError, match="local-file"):
            trtcache.load(program, trust=word)  # type: ignore[arg-type]


def test_a_file_that_others_can_write_is_read_once(program: Path, compiled: trtcache.CompiledModule) -> None:
    """What was verified is what is used: a change of such a file afterwards shows nowhere."""
    program.chmod(0o666)
    loaded = trtcache.load(program, trust="local-file")
    program.write_bytes(b"\0" * program.stat().st_size)
    assert torch.equal(loaded(X), compiled(X))


def test_files_beside_a_program_have_plain_names(compiled: trtcache.CompiledModule, tmp_path: Path) -> None:
    """A file beside a program is named in its header, and is nowhere else."""
    path = tmp_path / "here" / "program.pt2"
    path.parent.mkdir()
    first, second = trtcache.export(compiled, path, engines="sidecar").files
    assert first == path
    assert second.parent == path.parent
    assert second.stat().st_mode & 0o777 == 0o644
    second.rename(tmp_path / second.name)
    with pytest.raises(MissingEngineError, match="in the same folder"):
        trtcache.load(path, trust="local-file")


@pytest.mark.parametrize("how", ["group", "world", "link"])
def test_a_file_beside_a_program_may_be_anybodys(how: str, compiled: trtcache.CompiledModule, tmp_path: Path) -> None:
    """As the program itself: its digest is in the header, and what others can write to is read into memory."""
    path = tmp_path / "program.pt2"
    beside = trtcache.export(compiled, path, engines="sidecar").files[1]
    beside.chmod({"group": 0o664, "world": 0o666, "link": 0o644}[how])
    if how == "link":
        (tmp_path / "other").hardlink_to(beside)
    loaded = trtcache.load(path, trust="local-file")
    beside.write_bytes(b"\0" * beside.stat().st_size)
    assert torch.equal(loaded(X), compiled(X))
    with pytest.raises(TamperedProgramError, match="the file of its engines is damaged"):
        trtcache.load(path, trust="local-file")


def test_links_lead_to_a_program_and_what_is_beside_it(compiled: trtcache.CompiledModule, tmp_path: Path) -> None:
    """A link to the program alone is enough, and so are links to all of its files, which may have other names."""
    (tmp_path / "alone").mkdir()
    (tmp_path / "all").mkdir()
    program, beside = trtcache.export(compiled, tmp_path / "program.pt2", engines="sidecar").files
    (tmp_path / "alone" / "latest.pt2").symlink_to(program)
    for number, one in enumerate((program, beside)):
        (tmp_path / "all" / one.name).symlink_to(one.rename(tmp_path / f"blob{number}"))
    assert torch.equal(trtcache.load(tmp_path / "all" / "program.pt2", trust="local-file")(X), compiled(X))
    (tmp_path / "blob1").rename(beside)
    (tmp_path / "blob0").rename(program)
    assert torch.equal(trtcache.load(tmp_path / "alone" / "latest.pt2", trust="local-file")(X), compiled(X))


def test_a_program_with_engines_is_not_compiled_again(program: Path) -> None:
    """To the graph an engine is an operator that cannot run, so what loads it is named instead."""
    with pytest.raises(ExportError, match=r"trtcache\.load runs it"):
        trtcache.compile(program)


def test_files_beside_programs_of_different_names_are_different(
    compiled: trtcache.CompiledModule, tmp_path: Path
) -> None:
    """Names are kept plain, and one program does not write over another's engines for that."""
    plain = ("a b", "a-b", "\u6a21\u578b", "\u7a0b\u5e8f", "x" * 101, "x" * 102)
    names = (*(f"{name}.pt2" for name in plain), "rel.1", "rel.2", "rel", "rel.pt2", "rel.PT2", "rel.1.pt2", ".pt2")
    files = [trtcache.export(compiled, tmp_path / name, engines="sidecar").files[1] for name in names]
    assert len(set(files)) == len(names)
    for name in names:
        trtcache.load(tmp_path / name, trust="local-file")


def test_headers_are_what_they_say() -> None:
    """A header that was written is read as it was."""
    written = ProgramHeader("name", {}, {}).write()
    assert ProgramHeader.read(written, "path") == ProgramHeader("name", {}, {})
