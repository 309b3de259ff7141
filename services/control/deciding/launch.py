"""How a planned shard is started: the catalog's profile and the plan made into a LaunchSpec. Pure."""

from schemas.catalog import Model
from schemas.documents import LaunchSpec, ReplicaDocument, RestartPolicy, ShardPlan
from services.fleet.state import FleetState


def launch(
    state: FleetState, model: Model, replica: ReplicaDocument, plan: ShardPlan
) -> LaunchSpec | None:
    """None where the node is not described: nobody could start it there."""
    info = state.info(plan.node)
    head = state.info(replica.shards[0].node)
    if info is None or head is None:
        return None
    profile, gang = model.profile, len(replica.shards) > 1
    return LaunchSpec(
        engine=profile.engine.name,
        kind=profile.engine.kind,
        version=profile.engine.version,
        source=profile.source,
        served_name=model.name,
        task=profile.task,
        gpus=plan.gpus,
        cores=plan.cores,
        nodes=len(replica.shards),
        rank=plan.rank,
        host=info.document.address,
        port=plan.port,
        head_address=(head.document.fabric_address or head.document.address) if gang else "",
        rendezvous_port=replica.shards[0].rendezvous_port,
        args=profile.args,
        env=profile.env,
        metrics=profile.engine.metrics,
        stall_seconds=model.load_stall_seconds,
        restart=None if gang else RestartPolicy(),
    )
