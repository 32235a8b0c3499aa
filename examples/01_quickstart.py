"""A wrapped client, one tool, one session; no key, no GPU, no model.

tao sim-backend --port 8000 &
tao coordinator --backend http://127.0.0.1:8000 &
python examples/01_quickstart.py
"""

import os
import subprocess

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

import tao_client as tao

tao.connect(os.environ.get("TAO_ENDPOINT", "http://127.0.0.1:8700"))
base_url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
client = tao.wrap(OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none")))
model = client.models.list().data[0].id


@tao.tool(timeout_s=30)
def bash(command: str) -> str:
    """Run a command, as an agent's tool does."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30).stdout


messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Which system is this?"}]
with tao.session("quickstart"):
    for command in ("uname -a", "python3 --version", "df -h .", "echo done"):
        reply = client.chat.completions.create(model=model, messages=messages, max_tokens=200)
        messages.append({"role": "assistant", "content": reply.choices[0].message.content})
        messages.append({"role": "user", "content": bash(command)})
        if (usage := reply.usage) and (details := usage.prompt_tokens_details):
            print(f"{details.cached_tokens or 0} of {usage.prompt_tokens} prompt tokens cached")
print(f"{len(messages) // 2} turns and as many tool calls, scheduled")
