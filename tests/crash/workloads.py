"""The list of the workloads of the simulated disk. A seed decides the workload, its content and the crash states.

In group commit, real threads wait for each other in a fixed order. Every other workload uses one thread. So a seed
gives the same case each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.crash.compaction import SETUPS, cleaning_of, cut_cleaning
from tests.crash.history import cut_history
from tests.crash.jobs import cut_job
from tests.crash.life import cut_life
from tests.crash.producing import cut_producers
from tests.crash.repaired import cut_repair
from tests.crash.tables import cut_tables
from tests.crash.topics import cut_topics
from tests.crash.workload import POLICIES, cut_writer
from tests.support.crash_files import random_deaths
from tests.support.power_cuts import Tally

Workload = Callable[..., Tally]
SHARE = 64
SAMPLE = 3
"""One of so many operations is cut where a state takes several times as long as one of a history. Successive seeds
begin at another operation, with and without deaths, so that they cut all of them."""


def dies(seed: int) -> bool:
    """Processes die inside operations under every other seed."""
    return seed % 2 == 1


def deaths_of(seed: int, steps_max: int) -> Iterable[int]:
    return random_deaths(random.Random(seed), steps_max) if dies(seed) else ()


def writer(place: Path, *, seed: int, **how: Any) -> Tally:
    rng = random.Random(seed)
    policy = rng.choice([({}, 47), *POLICIES.values()])
    return cut_writer(place, rng.choice(["os", "sync"]), seed=seed, policy=policy, dies=dies(seed), **how)


def producers(place: Path, *, seed: int, **how: Any) -> Tally:
    return cut_producers(place, seed=seed, dies=dies(seed), **how)


def cleaning(place: Path, *, randoms: int, seed: int, stride: int = SAMPLE, **how: Any) -> Tally:
    """Cut the power with fewer states per cut: most are opened through the manager, and each is read twice."""
    of = cleaning_of(place, random.Random(seed).choice([*SETUPS]))
    sample = {"stride": stride, "first": seed % stride, "randoms": -(-randoms // 8)}
    return cut_cleaning(of, seed=seed, deaths=deaths_of(seed, 250), **sample, **how)[0]


def killed(place: Path, **how: Any) -> Tally:
    """Cut the power after processes have died inside operations. The next process continues with the page cache."""
    return cut_history(place, deaths=True, **how)


def topics(place: Path, *, randoms: int, seed: int, stride: int = SAMPLE, **how: Any) -> Tally:
    """Fewer states of each cut: all of them are opened through the manager, which takes three times as long."""
    return cut_topics(place, randoms=-(-randoms // 8), seed=seed, stride=stride, deaths=dies(seed), **how)


def repair(place: Path, *, randoms: int, seed: int, **how: Any) -> Tally:
    """Cut the power with fewer states per cut, for the same reason."""
    return cut_repair(place, randoms=-(-randoms // 8), seed=seed, deaths=deaths_of(seed, 120), **how)


def tables(place: Path, *, randoms: int, **how: Any) -> Tally:
    """Cut the power with fewer states per cut: there are many cuts, since a Parquet file is written in many pieces."""
    return cut_tables(place, randoms=-(-randoms // 2), **how)


def jobs(place: Path, *, randoms: int, seed: int, stride: int = SAMPLE, **how: Any) -> Tally:
    """Cut the power with fewer states per cut: each state gets the full check of its operation."""
    return cut_job(place, randoms=-(-randoms // 20), seed=seed, stride=stride, deaths=deaths_of(seed, 80), **how)


WORKLOADS: dict[str, tuple[int, Workload]] = {
    "history": (26, cut_history),
    "killed": (10, killed),
    "life": (2, cut_life),
    "producers": (2, producers),
    "writer": (6, writer),
    "cleaning": (1, cleaning),
    "topics": (1, topics),
    "repair": (1, repair),
    "jobs": (2, jobs),
    "tables": (2, tables),
}
"""The workloads, and how often a seed picks each: a history differs from seed to seed, the others mostly do not."""


def name_of(seed: int) -> str:
    """The workload of a seed."""
    return random.Random(seed).choices([*WORKLOADS], [weight for weight, _ in WORKLOADS.values()])[0]


def cut(place: Path, seed: int, *, randoms: int = 40, share: int = SHARE, **how: Any) -> Tally:
    """Run the workload of a seed under power cuts. One of `share` states gets a full check."""
    return WORKLOADS[name_of(seed)][1](place, seed=seed, randoms=randoms, share=share, **how)
