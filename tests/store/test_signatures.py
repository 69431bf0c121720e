"""The signature matrix: of all combinations, exactly one is loaded where signatures are required."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from trtcache.cache import Cache
from trtcache.config.environment import Config
from trtcache.config.signing_keys import PublicKey, SecretKey, Trust
from trtcache.digests import CacheKey, hash_bytes
from trtcache.errors import BuildForbiddenError, SettingsError, UntrustedWriterError
from trtcache.store.contract import Entry, Miss
from trtcache.store.disk import DiskStore
from trtcache.store.format import _PRELUDE, PRELUDE_BYTES, parse_prelude
from trtcache.store.layers import Layers
from trtcache.store.root import share
from trtcache.store.signatures import LINE_BYTES, sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OURS, OTHER, EARLIER = (
    SecretKey(name, bytes([number]) * 32) for number, name in enumerate(("ours", "other", "old"), 1)
)
KEY, ELSE = CacheKey.of("test", {"n": 1}), CacheKey.of("test", {"n": 2})
NOW_NS = 1_800_000_000 * 10**9  # 2027-01-15


@dataclass(frozen=True)
class Front:
    """The parts of a file before its members, and the rest: to be put together again, changed."""

    version: int
    header: bytes
    block: bytes
    members: bytes
    members_from: int

    @classmethod
    def of(cls, raw: bytes) -> Front:
        """Take a file apart."""
        prelude = parse_prelude(raw[:PRELUDE_BYTES], len(raw), "")
        body = raw[PRELUDE_BYTES : PRELUDE_BYTES + prelude.header_bytes]
        block = raw[PRELUDE_BYTES + prelude.header_bytes : prelude.members_from]
        return cls(prelude.version, body, block, raw[4096:], 4096)

    def bytes(self) -> bytes:
        """Put it together, with the digest that fits."""
        total = self.members_from + len(self.members)
        first = _PRELUDE.pack(b"\x89TRTC\r\n\x1a", self.version, len(self.header), len(self.block), 0, total)
        front = first + hash_bytes(first + self.header + self.block) + self.header + self.block
        return front.ljust(self.members_from, b"\0") + self.members


def signed(key: SecretKey | None, tmp_path: Path, which: CacheKey = KEY, *, content: bytes = b"engine") -> bytes:
    """Return the file of an entry that a key signed."""
    trust = Trust()
    if key is not None:
        path = tmp_path / f"{key.name}.secret"
        path.unlink(missing_ok=True)
        key.write(path)
        trust = Trust(signing_key=path)
    store = DiskStore.open(tmp_path / "made", trust=trust, clock_ns=lambda: NOW_NS)
    store.put(which, {"artifact": content * 999}, kind="test")
    return store.path(which.digest).read_bytes()


def field(name: str, value: Any) -> Callable[[Front], Front]:
    """Change one field of the header, and leave its signature."""

    def change(front: Front) -> Front:
        document = json.loads(front.header)
        document[name] = value
        body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        return replace(front, header=body.ljust(len(front.header)))

    return change


def leaves(value: Any, *way: str | int) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to each text and number in a document, and to each empty place for some."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [one for name, below in inner for one in leaves(below, *way, name)]
    yield from found or [way]


def with_changed(front: Front, way: tuple[str | int, ...]) -> Front:
    """Change what is at one place of the header by as little as there is, and leave its signature."""
    document = json.loads(front.header)
    place = document
    for name in way[:-1]:
        place = place[name]
    old = place[way[-1]]
    if isinstance(old, str):
        place[way[-1]] = old[:-1] + ("0" if old[-1] != "0" else "1")
    else:
        place[way[-1]] = old + 1 if isinstance(old, (int, float)) else "x" if old is None else {"x": "y"}
    body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return replace(front, header=body.ljust(len(front.header)))


def _twice(front: Front) -> Front:
    """Say each field a second time, behind the first: JSON takes the last."""
    body = front.header.rstrip()
    other = body.replace(b'"kind":"test","members"', b'"kind":"tesu","members"')
    return replace(front, header=body[:-1] + b"," + other[1:])


def _block(change: Callable[[bytes], bytes]) -> Callable[[Front], Front]:
    return lambda front: replace(front, block=change(front.block))


def _by(key: SecretKey) -> Callable[[Front], Front]:
    return lambda front: replace(front, block=sign(key, front.version, front.header))


def _with(key: SecretKey) -> Callable[[Front], Front]:
    def add(front: Front) -> Front:
        lines = sorted([front.block, sign(key, front.version, front.header)])
        return replace(front, block=b"".join(lines))

    return add


FORGED = {
    "valid": (lambda front: front, None),
    "valid beside another's": (_with(OTHER), None),
    "unsigned": (_block(lambda _: b""), "unsigned"),
    "by another key": (_by(OTHER), "unknown-key"),
    "by an expired key": (_by(EARLIER), "expired-key"),
    "another digit": (
        _block(lambda block: block[:70] + (b"1" if block[70:71] == b"0" else b"0") + block[71:]),
        "bad-signature",
    ),
    "all zero": (_block(lambda block: block[:65] + b"0" * 128 + b"\n"), "bad-signature"),
    "another's under our key": (
        lambda front: replace(front, block=front.block[:65] + _by(OTHER)(front).block[65:]),
        "bad-signature",
    ),
    "of no version": (lambda front: replace(front, block=sign(OURS, 0, front.header)), "bad-signature"),
    "of the header without its spaces": (
        lambda front: replace(front, block=sign(OURS, 1, front.header.rstrip())),
        "bad-signature",
    ),
    "cut short": (_block(lambda block: block[:-2]), "malformed"),
    "twice": (_block(lambda block: block * 2), "malformed"),
    "in capitals": (_block(bytes.upper), "malformed"),
    "with more behind it": (_block(lambda block: block + b"x"), "malformed"),
    "text": (_block(lambda _: b"trust me\n"), "malformed"),
    "another name": (field("name", "bert"), "bad-signature"),
    "another kind": (field("kind", "tesu"), "bad-signature"),
    "another time": (field("created_ns", 1), "bad-signature"),
    "another builder": (field("provenance", {"host": "ours"}), "bad-signature"),
    "another duration": (field("build_s", 9.0), "bad-signature"),
    "a stripped header": (lambda front: replace(front, header=front.header.rstrip()), "bad-signature"),
    "without a header": (lambda front: replace(front, header=b""), "bad-signature"),
    "without a header or a signature": (lambda front: replace(front, header=b"", block=b""), "unsigned"),
    "a header twice": (lambda front: replace(front, header=front.header * 2), "bad-signature"),
    "fields twice": (_twice, "bad-signature"),
    "another key document": (
        field("key", {"digest": f"b3:{KEY.digest}", "document": ELSE.document}),
        "bad-signature",
    ),
}


@pytest.fixture
def place(tmp_path: Path) -> Callable[[bytes], Path]:
    """Put a file where the entry of the key belongs, in a store of its own."""

    def put(raw: bytes) -> Path:
        store = DiskStore.open(tmp_path / "store")
        path = store.path(KEY.digest)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(raw)
        path.chmod(0o600)
        return store.root

    return put


def trusting(root: Path, *keys: PublicKey, required: bool | None = True) -> DiskStore:
    """Open a store for a reader who trusts these keys."""
    return DiskStore.open(root, trust=Trust(required, keys), clock_ns=lambda: NOW_NS)


@pytest.mark.parametrize("name", FORGED)
def test_only_one_cell_is_loaded(tmp_path: Path, place: Callable[[bytes], Path], name: str) -> None:
    """All others are misses with their reason, and stay in place."""
    forge, reason = FORGED[name]
    root = place(forge(Front.of(signed(OURS, tmp_path))).bytes())
    expired = replace(EARLIER.public, until=date(2027, 1, 14))
    found = trusting(root, OURS.public, expired).get(KEY)
    if reason is None:
        assert isinstance(found, Entry)
        assert found.read() == b"engine" * 999
    else:
        assert found == Miss(f"untrusted:{reason}")
    assert DiskStore.open(root).path(KEY.digest).exists()


@pytest.mark.parametrize("where", ["shared", "below"])
def test_it_is_so_in_every_store(tmp_path: Path, where: str) -> None:
    """A shared store requires signatures by default, and a lower layer if its reader does."""
    root, front = tmp_path / where, Front.of(signed(OURS, tmp_path))
    if where == "shared":
        share(root, os.getgid())
    path = DiskStore.open(root).path(KEY.digest)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    trust = Trust(None if where == "shared" else True, (OURS.public, replace(EARLIER.public, until=date(2020, 1, 1))))
    config = Config(root, trust=trust) if where == "shared" else Config(tmp_path / "upper", lower=(root,), trust=trust)
    layers = Layers.of(config, upper_must_open=True, lower_must_open=True)
    for name, (forge, reason) in FORGED.items():
        path.unlink(missing_ok=True)
        path.write_bytes(forge(front).bytes())
        path.chmod(0o600)
        found = layers.get(KEY)
        assert (found.reason if isinstance(found, Miss) else None) == (reason and f"untrusted:{reason}"), name
        assert path.exists(), name


def test_no_field_can_be_changed(tmp_path: Path, place: Callable[[bytes], Path]) -> None:
    """Each text and number of the header, whatever it is of, makes the signature a bad one."""
    front = Front.of(signed(OURS, tmp_path))
    ways = list(leaves(json.loads(front.header)))
    assert {way[0] for way in ways} == {"build_s", "created_ns", "key", "kind", "members", "name", "provenance"}
    assert len(ways) > 12
    for way in ways:
        root = place(with_changed(front, way).bytes())
        assert trusting(root, OURS.public).get(KEY) == Miss("untrusted:bad-signature"), way


@pytest.mark.parametrize("version", [0, 2, 1 << 31])
def test_another_format_does_not_bypass_signatures(
    tmp_path: Path, place: Callable[[bytes], Path], version: int
) -> None:
    """A file that declares another format is not read as one, and a signature covers the format."""
    front = replace(Front.of(signed(OURS, tmp_path)), version=version)
    for block in (front.block, sign(OURS, version, front.header), b""):
        root = place(replace(front, block=block).bytes())
        assert trusting(root, OURS.public).get(KEY) == Miss("format")


def test_the_cells_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How many forgeries there are is printed; one cell is loaded, and the same beside another's signature."""
    fields = list(leaves(json.loads(Front.of(signed(OURS, tmp_path)).header)))
    loaded = [name for name, (_, reason) in FORGED.items() if reason is None]
    assert loaded == ["valid", "valid beside another's"]
    cells = 3 * len(FORGED) + len(fields) + 9
    with capsys.disabled():
        sys.stdout.write(f"\nsignatures: {cells} cells, {len(fields)} of them fields; only what is valid is loaded\n")


@pytest.mark.parametrize("name", FORGED)
def test_signatures_that_are_not_required_are_ignored(
    tmp_path: Path, place: Callable[[bytes], Path], name: str
) -> None:
    """An entry that differs in its signatures only is a hit then, and a changed header is detected by digests."""
    forge, _ = FORGED[name]
    root = place(forge(Front.of(signed(OURS, tmp_path))).bytes())
    found = trusting(root, OURS.public, required=False).get(KEY)
    broken = {"another key document", "without a header", "without a header or a signature", "a header twice"}
    assert isinstance(found, Entry) == (name not in broken)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ((), "unknown-key"),
        ((OTHER.public,), "unknown-key"),
        ((PublicKey("ours", OTHER.public.raw),), "unknown-key"),
        ((replace(OURS.public, until=date(2027, 1, 14)),), "expired-key"),
        ((PublicKey("zero", bytes(32)),), "unknown-key"),
        ((replace(OURS.public, until=date(2027, 1, 15)),), None),
        ((replace(OURS.public, until=date(2027, 1, 14)), OURS.public), None),
    ],
    ids=["none", "other", "removed", "expired", "zero", "last day", "renewed"],
)
def test_keys_that_do_not_count(
    tmp_path: Path, place: Callable[[bytes], Path], keys: tuple[PublicKey, ...], reason: str | None
) -> None:
    """A key counts by its digits, not by its name, and to the end of its last day."""
    found = trusting(place(signed(OURS, tmp_path)), *keys).get(KEY)
    assert (found.reason if isinstance(found, Miss) else None) == (reason and f"untrusted:{reason}")


def test_signed_entries_do_not_change_places(tmp_path: Path, place: Callable[[bytes], Path]) -> None:
    """A sound signed entry under another key's name is damage, and so is its header before another's members."""
    other = signed(OURS, tmp_path, ELSE)
    assert trusting(place(other), OURS.public).get(KEY) == Miss("corrupt:key")
    mixed = Front.of(signed(OURS, tmp_path)), Front.of(signed(OURS, tmp_path, ELSE, content=b"evil!!"))
    root = place(replace(mixed[0], members=mixed[1].members).bytes())
    assert trusting(root, OURS.public).get(KEY) == Miss("corrupt:member")


def test_a_key_counts_to_the_end_of_its_last_day() -> None:
    """In UTC and to the nanosecond; the last day that there is, is one as well."""
    key, end_ns = replace(OURS.public, until=date(2027, 1, 14)), 1_799_971_200 * 10**9
    assert (key.is_valid_at(end_ns - 1), key.is_valid_at(end_ns)) == (True, False)
    assert replace(key, until=date.max).is_valid_at(end_ns)
    assert not replace(key, until=date.min).is_valid_at(end_ns)


def test_a_header_is_not_parsed_before_its_signature_counts(tmp_path: Path, place: Callable[[bytes], Path]) -> None:
    """Unsigned content is untrusted: its JSON is not parsed."""
    front = replace(Front.of(signed(OURS, tmp_path)), header=b"[" * 500)
    assert trusting(place(front.bytes()), OURS.public).get(KEY) == Miss("untrusted:bad-signature")
    assert trusting(place(front.bytes()), OURS.public, required=False).get(KEY) == Miss("corrupt:header")


def test_the_block_is_what_the_document_says(tmp_path: Path) -> None:
    """An independent reader written from docs/format.md verifies the signature, and the line length is right."""
    from blake3 import blake3  # what follows is meant to stand alone
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    front = Front.of(signed(OURS, tmp_path))
    assert len(front.block) == LINE_BYTES == 194
    public, _, signature = front.block.decode().rstrip("\n").partition(":")
    message = b"trtcache entry signature 1\n" + blake3(b"\x01\0\0\0" + front.header).digest()
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), message)


class Farm:
    """One directory that jobs with different keys use."""

    def __init__(self, root: Path, homes: Path) -> None:
        self.root, self.homes = root, homes

    def job(self, key: SecretKey | None, *trusted: SecretKey) -> Entry:
        """Get or build the entry in a job that signs with a key and trusts others."""
        path = None
        if key is not None:
            path = self.homes / key.name
            if not path.exists():
                key.write(path)
        trust = Trust(True, tuple(one.public for one in trusted), path)
        name = key.name if key else "nobody"
        return Cache(config=Config(self.root, trust=trust)).get_or_build({"n": 1}, name.encode, kind="test")


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    """An empty one."""
    (tmp_path / "homes").mkdir()
    return Farm(tmp_path / "farm", tmp_path / "homes")


def test_what_a_pull_request_built_first_is_not_what_main_runs(farm: Farm) -> None:
    """Main builds its own in that place, and from then on both take that one: no job's entry blocks another's."""
    main, pull = OURS, OTHER
    assert farm.job(pull, pull, main).outcome == "built"
    assert farm.job(pull, pull, main).outcome == "hit"
    built = farm.job(main, main)
    assert (built.outcome, built.reason, built.read()) == ("built", "untrusted:unknown-key", b"ours")
    for again in (farm.job(main, main), farm.job(pull, pull, main)):
        assert (again.outcome, again.read()) == ("hit", b"ours")


def test_a_forbidden_build_names_an_entry_that_is_not_trusted(farm: Farm, caplog: pytest.LogCaptureFixture) -> None:
    """It is there, and to trust its key is another remedy than a build. That nothing is stored is no news then."""
    farm.job(OTHER, OTHER)
    config = Config(farm.root, trust=Trust(True, (OURS.public,), None), forbid_build=True)
    with pytest.raises(
        BuildForbiddenError,
        match=r"no trusted entry for test key \w+ in .* \(the stored entry has no trusted signature \(unknown-key\)\)$",
    ):
        Cache(config=config).get_or_build({"n": 1}, bytes, kind="test")
    assert "nothing is stored" not in caplog.text


def test_a_signing_key_that_has_expired_is_named_so(tmp_path: Path) -> None:
    """It is among the trusted keys, so the reason must not say that it is not."""
    share(tmp_path / "store", os.getgid())
    OURS.write(tmp_path / "key")
    trust = Trust(None, (replace(OURS.public, until=date(2020, 1, 31)),), tmp_path / "key")
    store = DiskStore.open(tmp_path / "store", trust=trust)
    with pytest.raises(UntrustedWriterError, match=r"the signing key \S+ has expired \(2020-01-31\)"):
        store.put(KEY, {"artifact": b""}, kind="test")


@pytest.mark.parametrize("trusted", [(), (OURS,)], ids=["nobody", "ours"])
def test_who_has_no_key_that_counts_stores_nothing(
    farm: Farm, caplog: pytest.LogCaptureFixture, trusted: tuple[SecretKey, ...]
) -> None:
    """Such a process builds for itself, logs it once, and does not modify other entries."""
    farm.job(OURS, OURS)
    before = next(farm.root.rglob("*.trtc")).read_bytes()
    found = farm.job(OTHER, *trusted)
    assert (found.outcome, found.path is None) == (("hit", False) if trusted else ("built", True))
    assert caplog.text.count("is not among the trusted keys; see 'trtcache trust'") == 1
    assert farm.job(None).path is None
    assert "no signing key is set" in caplog.text
    assert next(farm.root.rglob("*.trtc")).read_bytes() == before
    with pytest.raises(UntrustedWriterError, match="nothing is stored there"):
        trusting(farm.root).put(KEY, {"artifact": b""}, kind="test")


def test_a_key_file_that_others_read_is_refused(tmp_path: Path) -> None:
    """And so is one that is not there, is a directory, or holds something else; none is shown."""
    path = tmp_path / "key"
    OURS.write(path)
    path.chmod(0o640)
    for change, why in (
        (lambda: None, "run: chmod 600"),
        (path.unlink, "trtcache trust keygen"),
        (path.mkdir, "is not a file"),
    ):
        change()
        with pytest.raises(SettingsError, match=why):
            SecretKey.read(path)
    for text in (f"ours:{'01' * 32}", f"trtcache-secret:ours:{'01' * 31}", "trtcache-secret:ours:xyz", ""):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(SettingsError, match="is not a secret key") as caught:
            SecretKey.read(path)
        assert "01" * 31 not in str(caught.value)
    assert "01" * 31 not in repr(OURS)


def test_without_its_library_there_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without required signatures cryptography is not needed; otherwise the error has the install command."""
    OURS.write(tmp_path / "key")
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.asymmetric", None)
    DiskStore.open(tmp_path / "store", trust=Trust(keys=(PublicKey("a", os.urandom(32)),)))
    for trust in (Trust(True, (PublicKey("a", os.urandom(32)),)), Trust(signing_key=tmp_path / "key")):
        with pytest.raises(SettingsError, match=r"pip install 'trtcache\[signatures\]'"):
            DiskStore.open(tmp_path / "store", trust=trust)
