"""Answers that are computed from one state: the present one, or one of the past. Pure."""

from collections.abc import Callable, Mapping

from msgspec import Raw, Struct

from schemas import api, frames
from services.control.commanding.mending import bad_documents
from services.control.deciding.current import Current
from services.control.deciding.explaining import explain_model
from services.fleet import views
from services.fleet.braking import brake_view
from services.fleet.state import FleetState
from services.fleet.views import Live


class Seen(Struct, frozen=True):
    """What an answer is computed from."""

    state: FleetState
    current: Current
    live: Live


Page = Callable[[Seen, Mapping[str, str]], frames.Frame]
"""The second argument: the names in the request's path."""


def _status(seen: Seen, _path: Mapping[str, str]) -> frames.Frame:
    return views.status(seen.state, seen.current.catalog, seen.live)


def _nodes(seen: Seen, _path: Mapping[str, str]) -> frames.Frame:
    return api.NodeList(as_of_seq=seen.state.sequence, items=views.nodes(seen.state, seen.live))


def _replicas(seen: Seen, _path: Mapping[str, str]) -> frames.Frame:
    rows = views.replicas(seen.state, seen.live)
    return api.ReplicaList(as_of_seq=seen.state.sequence, items=rows)


def _models(seen: Seen, _path: Mapping[str, str]) -> frames.Frame:
    rows = views.models(seen.state, seen.current.catalog)
    return api.ModelList(as_of_seq=seen.state.sequence, items=rows)


def _catalog(seen: Seen, _path: Mapping[str, str]) -> frames.Frame:
    pointer = seen.state.catalog.get(())
    return api.CatalogView(
        as_of_seq=seen.state.sequence,
        revision=seen.current.revision,
        hash=seen.current.catalog.hash,
        author="" if pointer is None else pointer.document.author,
        source=seen.current.catalog.source(),
    )


def _explain(seen: Seen, path: Mapping[str, str]) -> frames.Frame:
    catalog = seen.current.catalog
    model = catalog.resolve(path["model"])
    if model is None:
        known = ", ".join(catalog.models) or "none"
        return frames.Refusal(
            as_of_seq=seen.state.sequence,
            code="no_such_model",
            message=f"no model {path['model']}",
            why=f"the catalog has {known}",
        )
    return explain_model(seen.state, model)


def _state(seen: Seen, _path: Mapping[str, str]) -> frames.Frame:
    return api.StateDump(as_of_seq=seen.state.sequence, state=Raw(seen.state.dump()))


def _bad_documents(seen: Seen, _path: Mapping[str, str]) -> frames.Frame:
    return bad_documents(seen.state)


def _brake(seen: Seen, _path: Mapping[str, str]) -> frames.Frame:
    return brake_view(seen.state)


def _if_known(page: Page) -> Page:
    """Nothing is told of a fleet that this control has never read of: it is not known, and not empty."""

    def told(seen: Seen, path: Mapping[str, str]) -> frames.Frame:
        damage = seen.live.damage
        if damage is None or seen.state.log_id is not None:
            return page(seen, path)
        return frames.Refusal(
            as_of_seq=0,
            code="damaged",
            message="the log is damaged, and what was in it is not known here",
            why=damage.reason,
            next="flotilla journal recover",
        )

    return told


PAGES: dict[str, Page] = {
    "status": _status,
    "nodes": _if_known(_nodes),
    "replicas": _if_known(_replicas),
    "models": _if_known(_models),
    "catalog": _if_known(_catalog),
    "explain": _if_known(_explain),
    "state": _state,
    "brake": _brake,
    "bad-documents": _bad_documents,
}
"""By the name of the route."""
