"""What `flotilla up` prints when it is up: where to ask, a line to paste, what to type next."""

import shlex
from pathlib import Path

from ctl.typed import typed
from ctl.up_plan import Plan
from schemas.api import ModelRow
from services.fleet.settings import Resolved
from services.settings_io import load


def welcome(plan: Plan, models: tuple[ModelRow, ...], seconds: float) -> list[str]:
    """Models in trouble are named with the reason; the rest is told all the same."""
    ready = [row.model for row in models if row.ready]
    troubled = [row for row in models if row.wanted and not row.ready]
    told = [f"  ! {row.model} is {row.condition}: {row.reason}" for row in troubled]
    if ready:
        told += [
            f"{', '.join(ready)} ready after {seconds:.0f} s. Try it:",
            "",
            *_curl(plan, ready[0]),
        ]
    steps = ["status", "replicas", "catalog show", "catalog apply FILE"]
    if plan.doors.is_open:
        steps.append("join create NODE")
    return [
        *told,
        "",
        f"OpenAI base URL:  {plan.base_url}",
        f"Logs:             {plan.logs}",
        "",
        "Next, in another terminal:",
        *(f"  {next_step(plan, step)}" for step in steps),
        "",
        "Ctrl-C stops everything, engines too.",
    ]


def next_step(plan: Plan, verb: str) -> str:
    """As it can be pasted into another terminal in this folder."""
    return typed(f"flotilla {verb}{_data(plan)}")


def _curl(plan: Plan, model: str) -> list[str]:
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Say hello"}}]}}'
    return [
        f"  curl {plan.base_url}/chat/completions -H 'Content-Type: application/json' \\",
        f"    -d {shlex.quote(body)}",
    ]


def _data(plan: Plan) -> str:
    """Verbs look by themselves into the folder that the settings file here, or nobody, names."""
    found = load("operator", {}, {})
    if isinstance(found, Resolved) and Path(found.text("data.dir")).resolve() == plan.data:
        return ""
    return f" --data {shlex.quote(str(plan.data))}"
