"""An agent whose client some tracing library wraps as well: `WRAPPER BASE_URL`, as its own process.

Langfuse patches the classes of the openai package for a whole process, and each of them starts
threads of its own. Prints what the model said, by order of wrapping and kind of call.
"""

# The tracing libraries are typed in parts only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import openai
from openai.types.chat import ChatCompletionMessageParam

import tao_client as tao

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "say hello"}]
Wrap = Callable[[Any], Any]


def set_up(wrapper: str) -> tuple[Wrap, Callable[[], object]]:
    """How the library wraps a client, and how it is made to send what it has seen."""
    if wrapper == "langsmith":
        from langsmith.run_trees import get_cached_client
        from langsmith.wrappers import wrap_openai

        return wrap_openai, lambda: get_cached_client().flush()
    if wrapper == "braintrust":
        import braintrust

        braintrust.init_logger(
            project="p", project_id="p", api_key="k", app_url=os.environ["BRAINTRUST_APP_URL"]
        )
        return braintrust.wrap_openai, braintrust.flush
    import langfuse.openai  # pyright: ignore[reportUnusedImport] - it patches at its import

    return lambda client: client, langfuse.get_client().flush


def call(client: openai.OpenAI) -> dict[str, str | None]:
    whole = client.chat.completions.create(model="m", messages=MESSAGES)
    stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    return {
        "plain": whole.choices[0].message.content,
        "stream": "".join(chunk.choices[0].delta.content or "" for chunk in stream),
    }


async def call_async(client: openai.AsyncOpenAI) -> dict[str, str | None]:
    async with client:
        whole = await client.chat.completions.create(model="m", messages=MESSAGES)
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        words = [chunk.choices[0].delta.content or "" async for chunk in stream]
    return {"async": whole.choices[0].message.content, "async stream": "".join(words)}


def main(wrapper: str, base_url: str) -> None:
    theirs, flush = set_up(wrapper)
    orders: dict[str, Wrap] = {
        "ours last": lambda client: tao.wrap(theirs(client)),
        "ours first": lambda client: theirs(tao.wrap(client)),
    }
    said: dict[str, dict[str, str | None]] = {}
    for order, wrap in orders.items():
        with tao.session(order.replace(" ", "-")):
            said[order] = call(wrap(openai.OpenAI(base_url=base_url, api_key="k")))
            client = wrap(openai.AsyncOpenAI(base_url=base_url, api_key="k"))
            said[order] |= asyncio.run(call_async(client))
    flush()
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
