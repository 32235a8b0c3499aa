"""A real mini-SWE-agent run: every command a tool call, every model call a scheduled turn.

tao sim-backend --port 8000 --script examples/02_mini_swe_agent.json &
tao coordinator --backend http://127.0.0.1:8000 &
python examples/02_mini_swe_agent.py
"""
# pyright: basic

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from minisweagent.agents.default import DefaultAgent
from minisweagent.config import get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

import tao_client as tao
from tao_integrations.mini_swe_agent import bind

tao.connect(os.environ.get("TAO_ENDPOINT", "http://127.0.0.1:8700"))
model = LitellmModel(
    model_name=f"openai/{os.environ.get('MODEL', 'sim/qwen3-32b-bf16-tp2')}",
    model_kwargs={
        "api_base": os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1"),
        "api_key": os.environ.get("OPENAI_API_KEY", "none"),
    },
    cost_tracking="ignore_errors",  # an own model has no price
)
prompts = get_config_from_spec("mini")["agent"]
with tempfile.TemporaryDirectory() as folder:
    program = Path(folder, "greet.py")
    program.write_text('def greet(name):\n    retrun f"hello {name}"\n\nprint(greet("world"))\n')
    agent = bind(DefaultAgent(model, LocalEnvironment(cwd=folder), **prompts))
    result = agent.run("[[script fix-greet]] greet.py does not run. Fix it.")
    output = subprocess.run([sys.executable, program], capture_output=True, text=True).stdout
print(f"{result['exit_status']} after {agent.n_calls} turns; greet.py prints: {output.strip()}")
