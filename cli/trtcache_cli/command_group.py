"""A group of commands that answers an unknown one as the program does."""

from __future__ import annotations

import click

from trtcache.errors import did_you_mean


class CommandGroup(click.Group):
    """A group that suggests the nearest of its commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for an unknown name suggest the nearest one."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            path = " ".join([*ctx.command_path.split()[1:], "command"])
            ctx.fail(f"{path} {args[0]!r}: {did_you_mean(args[0], names)}")
        return super().resolve_command(ctx, args)
