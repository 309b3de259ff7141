from collections.abc import AsyncIterator

import openai
import pytest

from tests.support.fleet import LiveFleet


@pytest.fixture
async def client(serving: LiveFleet) -> AsyncIterator[openai.AsyncOpenAI]:
    base = serving.base_url()
    async with openai.AsyncOpenAI(base_url=base, api_key="unused", max_retries=0) as made:
        yield made


async def test_the_official_client_is_served_by_the_real_engine(
    client: openai.AsyncOpenAI,
) -> None:  # spec: T1
    models = await client.models.list()
    assert [model.id for model in models.data] == ["tiny"]

    whole = await client.chat.completions.create(
        model="tiny", max_tokens=8, messages=[{"role": "user", "content": "hello"}]
    )
    assert whole.choices[0].message.content
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 8

    stream = await client.chat.completions.create(
        model="tiny",
        max_tokens=8,
        messages=[{"role": "user", "content": "hello"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert chunks[-1].usage is not None

    completion = await client.completions.create(model="tiny", prompt="hello", max_tokens=8)
    assert completion.choices[0].text
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="no-such-model", messages=[])
    assert missing.value.code == "model_not_found"
