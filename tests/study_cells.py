"""Small cells for tests."""

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.workload_choice import WorkloadChoice

SMALL = Cell(
    panel="small",
    arm="tao",
    policy=PolicyChoice("tao"),
    workload=WorkloadChoice(name="swe-lite"),
    seed=1,
    sessions=8,
    engine="qwen3-32b-bf16-tp2",
    workers=4,
)
