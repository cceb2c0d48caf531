"""Campaigns on Ray, for real: two nodes with a CPU each, and the bytes of the local engine."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cli.test_cli_reproduce import tiny
from nsm.experiments import campaign
from nsm.experiments.engines.cluster import ATTEMPTS, RayCluster
from nsm.experiments.engines.engine import Job, Outcome
from nsm.experiments.engines.local import Local
from nsm.experiments.paper import Cell
from nsm.training.run import RunDirectory
from training.small_runs import contents, strays

REPRODUCE = [sys.executable, "-m", "nsm", "reproduce", "single"]


@pytest.fixture(scope="module")
def cluster():
    """A head without CPUs and two nodes with one each, every one with processes and an object store of its own."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    memory = {"object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **memory})
    for _ in range(2):
        cluster.add_node(num_cpus=1, **memory)
    yield cluster
    cluster.shutdown()


def planned(root, **configs):
    return [Job(Cell("row", name, config), 0, root / name) for name, config in configs.items()]


def long():
    return tiny(iterations=8000, checkpoint_every=100)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """What a long run comes to on the local engine."""
    (job,) = planned(tmp_path_factory.mktemp("straight"), job=long())
    with Local(1, "fused") as engine:
        assert campaign.run([job], engine) == {job: Outcome("done")}
    return contents(job.directory)


def without_times(rows):
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]


def test_the_table_is_that_of_the_local_engine(tmp_path):
    """On a cluster of its own, which is gone afterwards."""
    options = ["--only", "recall/", "--seeds", "1", "--budget", "10", "--json"]
    ours, theirs = (
        subprocess.run([*REPRODUCE, *options, *engine], capture_output=True, text=True, check=False)
        for engine in (["--out", str(tmp_path / "local")], ["--out", str(tmp_path / "ray"), "--engine", "ray"])
    )
    assert theirs.returncode == ours.returncode == 0, theirs.stderr
    assert without_times(json.loads(theirs.stdout)) == without_times(json.loads(ours.stdout))
    assert all(re.match(r"single: \d/2 runs, ", line) for line in theirs.stderr.splitlines()), theirs.stderr
    for run in (tmp_path / "local").rglob("seed-0"):
        mirrored = tmp_path / "ray" / run.relative_to(tmp_path / "local")
        assert contents(mirrored) == contents(run)
        assert strays(mirrored) == []


def test_a_run_that_diverges_and_a_worker_that_dies_take_no_other_with_them(cluster, straight, monkeypatch, tmp_path):
    monkeypatch.setattr(campaign, "TICK", 0.05)  # in a second a worker that is to die might be done
    bad = replace(tiny(), optimiser=replace(tiny().optimiser, learning_rate=1e30))
    jobs = planned(tmp_path, diverges=bad, dies=long(), well=tiny(), after=tiny())
    dies, killed = jobs[1], []

    def tick(known):
        """Kill every worker that takes the second run on, once it has begun."""
        for flight in engine._flights:
            if flight.job == dies and flight.place and flight.place not in killed and campaign.progress(dies)[0] > 100:
                killed.append(flight.place)
                os.kill(int(flight.place.split()[1]), signal.SIGKILL)

    with RayCluster(2, "fused", cluster.address) as engine:
        outcomes = {job.cell.model: outcome for job, outcome in campaign.run(jobs, engine, tick).items()}
    assert outcomes["well"] == outcomes["after"] == Outcome("done")
    assert re.match("(the loss|a gradient|a weight) .*; the first bad tensor is ", outcomes["diverges"].reason)
    assert outcomes["dies"].status == "failed"
    assert outcomes["dies"].reason.startswith(f"its worker died {ATTEMPTS} times, the last time {killed[-1]}: ")
    assert len(killed) == ATTEMPTS
    for name in ("diverges", "dies"):
        assert RunDirectory(tmp_path / name).failure()["reason"] == outcomes[name].reason
    # The other engine finishes what is left.
    with Local(1, "fused") as engine:
        assert campaign.run([dies], engine) == {dies: Outcome("done")}
    assert contents(dies.directory) == straight
    assert strays(dies.directory) == []


def test_a_stopped_campaign_saves_its_runs_and_any_engine_goes_on(cluster, tmp_path):
    """Three runs are asked for at a time and there are two CPUs: one has not begun when the signal comes."""
    options = ["--only", "copy/nutm", "--preset", "default", "--seeds", "1", "--budget", "3000"]
    command = [*REPRODUCE, *options, "--jobs", "3", "--engine", "ray", "--address", cluster.address]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*command, "--out", str(tmp_path)], **pipes, start_new_session=True)
    metrics = tmp_path / "single" / "default-3000" / "copy" / "nutm" / "seed-0" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 75, err
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "nsm: stopped; what was done is saved, and the same command goes on from there"
    run = RunDirectory(metrics.parent)
    assert run.checkpoint("last").step >= run.metrics()[-1]["step"], "the step under way was finished and saved"
    assert run.failure() is None
    assert strays(run.path) == []


def test_a_campaign_that_is_stopped_goes_on_with_the_same_bytes(cluster, straight, tmp_path):
    (job,), asked = planned(tmp_path, stopped=long()), []

    def tick(known):
        if campaign.progress(job)[0] > 100 and not asked:
            asked.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    with RayCluster(1, "fused", cluster.address) as engine:
        assert campaign.run([job], engine, tick) == {job: Outcome("interrupted")}
    stopped = RunDirectory(job.directory).checkpoint("last").step
    assert 100 < stopped < 8000
    seen = []
    with RayCluster(1, "fused", cluster.address) as engine:
        assert campaign.run([job], engine, lambda _: seen.append(campaign.progress(job)[0])) == {job: Outcome("done")}
    assert min(seen) >= stopped - stopped % 5, "it went on from where it was"
    assert contents(job.directory) == straight


def test_a_run_in_use_is_refused_and_the_others_go_on(cluster, tmp_path):
    used, well = planned(tmp_path, used=tiny(), well=tiny())
    with RunDirectory(used.directory).opened(used.config), RayCluster(2, "fused", cluster.address) as engine:
        outcomes = campaign.run([used, well], engine)
    assert "is in use by another process" in outcomes[used].reason
    assert outcomes[well] == Outcome("done")


def test_a_node_with_other_versions_is_named(cluster, tmp_path, monkeypatch):
    from nsm.experiments.engines import cluster as module

    (job,) = planned(tmp_path, job=tiny())
    true_versions = module.versions()
    monkeypatch.setattr(module, "versions", lambda: {**true_versions, "torch": "1.0"})
    with RayCluster(1, "fused", cluster.address) as engine:
        (outcome,) = campaign.run([job], engine).values()
    expected = rf"process \d+ on .+ has torch {re.escape(true_versions['torch'])}, not the versions of the machine that"
    assert re.match(expected, outcome.reason)


def test_a_node_that_dies_is_replaced_by_another(cluster, straight, tmp_path):
    """The last of these tests: one node is left."""
    (job,) = planned(tmp_path, job=long())
    removed, after = [], []

    def tick(known):
        if removed:
            after.append(campaign.progress(job)[0])
        elif campaign.progress(job)[0] > 500:
            pid = int(engine._flights[0].place.split()[1])
            removed.append(RunDirectory(job.directory).checkpoint("last").step)
            cluster.remove_node(node_of(pid, cluster))

    with RayCluster(1, "fused", cluster.address) as engine:
        assert campaign.run([job], engine, tick) == {job: Outcome("done")}
    assert removed
    assert min(after) >= removed[0] > 0, "it went on from what had come through"
    assert contents(job.directory) == straight


def node_of(worker, cluster):
    """The node whose raylet started a worker."""
    raylets = {info.process.pid: node for node in cluster.worker_nodes for info in node.all_processes["raylet"]}
    process = worker
    while process not in raylets:
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return raylets[process]


# --- mistakes ---------------------------------------------------------------------------------------------------------


def test_without_ray_it_is_one_sentence(nsm, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = nsm("reproduce", "single", "--engine", "ray")
    assert (said.code, said.err) == (2, 'nsm: Ray is not installed: pip install "nsm[ray]"\n')


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:1", "no Ray cluster at address '127.0.0.1:1': Connection refused"),
        ("nowhere.invalid:6379", "no Ray cluster at address 'nowhere.invalid:6379': "),
        ("nonsense", "address must be host:port or auto, was 'nonsense'"),
        ("127.0.0.1:999999", "no Ray cluster at address '127.0.0.1:999999': "),
    ],
)
def test_a_wrong_address_is_one_sentence(nsm, address, sentence):
    said = nsm("reproduce", "single", "--engine", "ray", "--address", address)
    assert said.code == 2
    assert said.err.startswith(f"nsm: {sentence}")
    assert len(said.err.splitlines()) == 1


def test_an_address_needs_ray(nsm):
    said = nsm("reproduce", "single", "--address", "127.0.0.1:6379")
    assert (said.code, said.err) == (2, "nsm: --address needs --engine ray, was local\n")
    said = nsm("reproduce", "single", "--engine", "rey")
    assert (said.code, said.err) == (2, "nsm: engine must be one of 'local', 'ray', was 'rey'; did you mean 'ray'?\n")
