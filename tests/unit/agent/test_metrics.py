from prometheus_client import generate_latest

from services.agent.metrics import Metrics
from services.agent.shard import Life, Moment, begin
from tests.support.shards import an_order


def test_every_phase_has_a_sample_and_damage_shows() -> None:
    life: Life = begin(an_order("/m.gguf", 17000), 0, Moment(0.0, 0.0))[0]
    page = generate_latest(Metrics(lambda: [life], lambda: True, lambda: 3).registry).decode()
    assert 'flotilla_agent_shards{phase="starting"} 1.0' in page
    assert 'flotilla_agent_shards{phase="ready"} 0.0' in page
    assert "flotilla_agent_log_damaged 1.0" in page
    assert "flotilla_agent_nats_denials_total 3.0" in page
