"""``trtcache backends``: every registered backend, with its state and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field

import click

from trtcache.config import backend_settings
from trtcache.config.frozen import frozen_dataclass
from trtcache.errors import BackendUnavailableError
from trtcache_cli.output import on_terminal, print_json, print_table, print_tsv
from trtcache_cli.session import Session, examples, session_options


@frozen_dataclass
class Description:
    """A registered backend.

    Attributes:
        name: its name.
        package: the distribution that offers it.
        version: the version of that.
        state: ``ready``, or why it cannot run here, for each device type that it cannot run on.
        devices: its device types, with the reason why it cannot run on one here, or None.
        settings: its settings as they are written, with their defaults.
    """

    name: str
    package: str
    version: str
    state: str
    devices: Mapping[str, str | None] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def row(self) -> tuple[str, ...]:
        """Name, package, version, devices and state."""
        return self.name, self.package, self.version, ", ".join(self.devices), self.state


@click.command(epilog=examples("trtcache backends", "trtcache backends --json"))
@session_options
def backends(session: Session) -> None:
    """List the backends that are installed, what they run on, why one cannot be used, and their settings.

    A backend of another package is registered by its entry point. Settings are shown with their defaults.
    """
    found = [describe(name) for name in backend_settings.backend_table()]
    if session.as_json:
        print_json({"backends": [asdict(one) for one in found]})
    elif on_terminal():
        print_table(("NAME", "PACKAGE", "VERSION", "DEVICES", "STATE"), [one.row for one in found])
        click.echo()
        settings = {name: _text(default) for one in found for name, default in one.settings.items()}
        print_table(("SETTING", "DEFAULT"), [*settings.items()])
    else:
        print_tsv(
            (*one.row, ",".join(f"{name}={_text(default)}" for name, default in one.settings.items())) for one in found
        )


def _text(default: object) -> str:
    return "" if default is None else str(default)


def describe(name: str) -> Description:
    """Return the description of a backend; one that cannot be loaded has its error as state."""
    from trtcache.backends import registry
    from trtcache.backends.fitness import reasons_by_device, state_of

    package, version = backend_settings.package_of(name)
    try:
        backend = registry.load_backend(name)
        reasons = reasons_by_device(backend)
        kind = backend.settings_class
        settings = {f"{kind.section}.{one}": default for one, default in kind.describe().items()} if kind else {}
    except BackendUnavailableError as error:
        return Description(name, package, version, error.why)
    except Exception as error:  # noqa: BLE001  # another distribution's code
        return Description(name, package, version, f"it fails with {type(error).__name__}: {error}")
    return Description(name, package, version, state_of(reasons), reasons, settings)
