"""Engines that this version knows by name and metrics, and does not start."""

from schemas.documents import EngineKind, LastError, LaunchSpec
from services.agent.engines.adapter import Adapter, Environment, refusal


def undriven(kind: EngineKind) -> Adapter:
    """An adapter whose every start is refused, which nothing but another profile can change."""

    def command(_spec: LaunchSpec, _environment: Environment) -> LastError:
        return refusal("engine_not_driven", f"{kind} is not driven by this version")

    return Adapter(kind=kind, command=command)
