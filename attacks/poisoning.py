"""A pull-request job puts its own code under the key that ``main`` will ask for next."""

from __future__ import annotations

from pathlib import Path

from attacks.stage import MAIN, PULL, Stage, Succeeded, engine_of, file_of, key_of, served
from trtcache.store.contract import Miss
from trtcache.store.format import PRELUDE_BYTES, parse_prelude

EVIL = b"evil code of a pull request " * 300


def attack(folder: Path) -> str:
    """Come first with an own signature, with none, and with ``main``'s of another entry; then stand in its way."""
    stage = Stage.set(folder)
    own = stage.put(stage.open(PULL, PULL, MAIN), 1, EVIL).read_bytes()
    signed_by_main = stage.put(stage.main(), 2).read_bytes()
    reasons = []
    for raw in variants(own, signed_by_main).values():
        stage.plant(1, raw)
        found = stage.main().get(key_of(1))
        if not isinstance(found, Miss):
            raise Succeeded("main was given the pull request's code")
        reasons.append(found.reason.removeprefix("untrusted:"))
    stage.put(stage.main(), 1)
    if served(stage.main(), 1) != engine_of(1):
        raise Succeeded("main was kept from its own entry")
    return f"main took none of four files ({', '.join(reasons)}), and its own replaced the last"


def variants(own: bytes, signed_by_main: bytes) -> dict[str, bytes]:
    """Return an entry with the attacker's signature, with none, and with ``main``'s of another entry."""
    return {
        "the attacker's own": own,
        "unsigned": with_block(own, b""),
        "a stolen signature": with_block(own, block_of(signed_by_main)),
        "a renamed signature": with_block(own, MAIN.public.raw.hex().encode() + block_of(own)[64:]),
    }


def block_of(raw: bytes) -> bytes:
    """Return the signatures of a file."""
    prelude = parse_prelude(raw[:PRELUDE_BYTES], len(raw), "")
    return raw[prelude.members_from - prelude.signatures_bytes : prelude.members_from]


def with_block(raw: bytes, block: bytes) -> bytes:
    """Return a file with other signatures."""
    prelude = parse_prelude(raw[:PRELUDE_BYTES], len(raw), "")
    header = raw[PRELUDE_BYTES : PRELUDE_BYTES + prelude.header_bytes]
    return file_of(header, block, raw[-(-prelude.members_from // 4096) * 4096 :])
