"""The whole platform: 2,880 GPUs, twelve tenants."""

from __future__ import annotations

from accuracy.families.scenario_draw import MODELS, Content, Draw

HOSTS = (64, 64, 32, 32, 32, 32, 32, 16, 16, 16, 16, 8)
"""Of each job: 360 hosts of eight GPUs."""


def platform(seed: int) -> Content:
    """Twelve jobs whose layouts, models and ways to synchronise are drawn, all well."""
    draw = Draw("platform", seed)
    layouts = [(tp, pp) for tp in (2, 4, 8) for pp in (1, 2, 4, 8)]
    jobs = [
        _job(draw, chr(ord("a") + index), hosts, *layout)
        for index, (hosts, layout) in enumerate(zip(HOSTS, draw.shuffled(layouts), strict=True))
    ]
    return {
        "jobs": jobs,
        "collector": {"retransmitted": 0.0005},
        "fabric": {"hosts": sum(HOSTS), "hosts_per_leaf": 32, "spines": 16},
    }


def _job(draw: Draw, name: str, hosts: int, tp: int, pp: int) -> Content:
    """Draw a job; models grow with the stages that hold them, and optimizers are mostly distributed."""
    model = draw.one_of(*(["3b", "7b"] if tp * pp < 16 else list(MODELS)[2:]))
    layers = MODELS[model][0]
    optimizer = draw.one_of("distributed", "distributed", "replicated")
    gather = draw.one_of("yes", "no", "no") if optimizer == "distributed" else "no"
    return draw.dense(
        name,
        hosts,
        (4.0, 9.0),
        tp=tp,
        pp=pp,
        model=model,
        layers=layers - layers % pp,
        micro_batches=draw.one_of(2, 3) * max(pp, 2),
        optimizer=optimizer,
        overlap_param_gather=gather,
        gradient_sync=draw.one_of("overlap", "overlap", "after"),
    )
