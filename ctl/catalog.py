"""`flotilla catalog`: check a file without any server, make it current, get it back."""

from pathlib import Path

import click
import msgspec

from ctl.at import ask, at_option
from ctl.catalog_file import read, text
from ctl.failure import Exit, Failure
from ctl.faults import fault_lines
from ctl.operator import Operator, Verb
from ctl.render import as_it_is, data, result
from ctl.texts import NAME, reason_option
from schemas.api import ApplyCatalog, CatalogView
from schemas.frames import Accepted
from schemas.ids import ModelName

source_file = click.argument("file", type=click.Path(path_type=Path, allow_dash=True))


class Revision(click.ParamType[int]):
    """`17`, or `r17` as it is shown."""

    name = "revision"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Fails with what may be written."""
        digits = str(value).removeprefix("r")
        if not digits.isascii() or not digits.isdigit():
            self.fail(f"`{value}` is not a revision; write 17 or r17", param, ctx)
        return int(digits)


@click.command()
@source_file
def validate(file: Path) -> None:
    """Check FILE (`-`: standard input) and list every fault with its place. Needs no server."""
    from services.fleet.catalog import CatalogFaults, from_yaml

    content, name = read(file)
    made = from_yaml(content, name)
    if isinstance(made, CatalogFaults):
        count = len(made.faults)
        raise Failure(
            Exit.USAGE,
            "bad_catalog",
            f"{name} is no catalog: {count} fault{'s' if count > 1 else ''}",
            details=fault_lines(made.faults),
        )
    result(f"{name}: ok, {len(made.models)} model{'' if len(made.models) == 1 else 's'}")


@click.command(cls=Verb)
@source_file
@click.option("--prune", type=NAME, multiple=True, metavar="MODEL", help="A model that may vanish.")
@click.option("--prune-all", is_flag=True, help="Any model may vanish.")
@click.option("--if-revision", type=Revision(), help="Only if this is still the current revision.")
@reason_option
@click.pass_obj
def apply(
    operator: Operator,
    file: Path,
    prune: tuple[str, ...],
    prune_all: bool,
    if_revision: int | None,
    reason: str,
) -> None:
    """Make FILE (`-`: standard input) the current catalog. Models that would vanish need --prune."""
    content, name = read(file)
    request = ApplyCatalog(
        source=text(content, name),
        file=name,
        prune=tuple(ModelName(model) for model in prune),
        prune_all=prune_all,
        if_revision=if_revision,
        reason=reason,
    )
    answer = operator.client().ask("apply", Accepted, request=request)
    if not operator.prints_frame(answer.body):
        result(_accepted(answer.frame))


@click.command(cls=Verb, context_settings={"default_map": {"output": "yaml"}})
@click.argument("revision", type=Revision(), required=False)
@at_option
@click.pass_obj
def show(operator: Operator, revision: int | None, at: str | None) -> None:
    """The current catalog, or a kept REVISION, as a file that makes it. -o json gives its frame."""
    if revision is None:
        answer = ask(operator, "catalog", CatalogView, at)
    elif at is None:
        path = {"revision": str(revision)}
        answer = operator.client().ask("catalog-revision", CatalogView, path=path)
    else:
        raise click.UsageError("a revision is the same at all times: --at is not taken with one")
    if not answer.frame.revision:
        raise Failure(
            Exit.NOT_FOUND, "no_catalog", "no catalog yet", steps=["flotilla catalog apply FILE"]
        )
    if operator.output in {"json", "jsonl"}:
        data(answer.body, operator.output)
    else:
        as_it_is(_as_file(answer.frame.source).rstrip("\n"))


def _accepted(done: Accepted) -> str:
    if not done.changed:
        return f"unchanged: this is catalog r{done.revision} already"
    return f"catalog r{done.revision} is current (command {done.command})"


def _as_file(source: msgspec.Raw) -> str:
    from services.fleet.catalog import CatalogFaults, from_json
    from services.fleet.catalog import show as as_yaml

    made = from_json(source)
    if isinstance(made, CatalogFaults):
        raise Failure(
            Exit.NO,
            "not_understood",
            "this version of the command refuses the catalog that is current",
            details=fault_lines(made.faults),
            steps=["flotilla catalog show -o json", "flotilla version"],
        )
    return as_yaml(made)
