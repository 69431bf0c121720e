"""``trtcache completion``: print a shell completion script for commands, options and keys."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from trtcache_cli.main import PROGRAM, cli
from trtcache_cli.session import examples


@click.command(
    epilog=examples(
        'eval "$(trtcache completion bash)"          # in ~/.bashrc',
        'eval "$(trtcache completion zsh)"           # in ~/.zshrc',
        "trtcache completion fish > ~/.config/fish/completions/trtcache.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell completion script."""
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101  # the choices are click's own
    click.echo(found(cli, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
