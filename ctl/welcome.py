"""What `flotilla up` prints when it is up: where to ask, a line to paste, what to type next."""

import shlex
from pathlib import Path

from ctl.operator import DEFAULT_DATA
from ctl.render import escaped
from ctl.typed import typed
from ctl.up_plan import Plan
from schemas.api import ModelRow


def welcome(plan: Plan, models: tuple[ModelRow, ...], seconds: float) -> str:
    """Models in trouble are named with the reason; the rest is told all the same."""
    ready = [row.model for row in models if row.ready]
    troubled = [row for row in models if row.wanted and not row.ready]
    told = [f"  ! {escaped(f'{row.model} is {row.condition}: {row.reason}')}" for row in troubled]
    if ready:
        told += [
            f"{', '.join(ready)} ready after {seconds:.0f} s. Try it:",
            "",
            *_curl(plan, ready[0]),
        ]
    steps = ("status", "replicas", "catalog show", "catalog apply FILE")
    return "\n".join(
        [
            *told,
            "",
            f"OpenAI base URL:  {plan.base_url}",
            f"Logs:             {plan.logs}",
            "",
            "Next, in another terminal:",
            *(f"  {typed(f'flotilla {step}{_data(plan)}')}" for step in steps),
            "",
            "Ctrl-C stops everything, engines too.",
        ]
    )


def _curl(plan: Plan, model: str) -> list[str]:
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Say hello"}}]}}'
    return [
        f"  curl {plan.base_url}/chat/completions -H 'Content-Type: application/json' \\",
        f"    -d {shlex.quote(body)}",
    ]


def _data(plan: Plan) -> str:
    """Verbs look into the default folder by themselves."""
    if plan.data == Path(DEFAULT_DATA).resolve():
        return ""
    return f" --data {shlex.quote(str(plan.data))}"
