"""Campaigns on Ray, for real: two nodes with a CPU each, and the bytes of the local engine."""

import ipaddress
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from cli.test_cli_reproduce import tiny
from nsm.experiments import campaign
from nsm.experiments.engines import Job, Status
from nsm.experiments.engines.cluster import ATTEMPTS, RayCluster
from nsm.experiments.engines.local import Local
from nsm.experiments.paper import Cell
from nsm.training.run import RunDirectory
from training.small_runs import contents, strays

REPRODUCE = [sys.executable, "-m", "nsm", "reproduce", "single"]


@pytest.fixture(scope="module", autouse=True)
def token():
    """What Ray reads when it is first imported in this process: a cluster of these tests is for nobody else."""
    with pytest.MonkeyPatch.context() as context:
        context.setenv("RAY_USAGE_STATS_ENABLED", "0")
        context.setenv("RAY_AUTH_MODE", "token")
        context.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        yield


@pytest.fixture(scope="module")
def cluster():
    """A head without CPUs and two nodes with one each, every one with processes and an object store of its own."""
    from ray.cluster_utils import Cluster

    memory = {"object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **memory})
    for _ in range(2):
        cluster.add_node(num_cpus=1, **memory)
    yield cluster
    cluster.shutdown()


def planned(root, **experiments):
    return [Job(Cell("row", name, experiment), 0, root / name) for name, experiment in experiments.items()]


def long():
    return tiny(iterations=8000, checkpoint_every=100)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """What a long run comes to on the local engine."""
    (job,) = planned(tmp_path_factory.mktemp("straight"), job=long())
    with Local(1, "fused") as engine:
        assert campaign.run([job], engine) == {job: Status("done")}
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
    assert all(re.match(r"single: (\d/)?2 runs", line) for line in theirs.stderr.splitlines()), theirs.stderr
    for run in (tmp_path / "local").rglob("seed-0"):
        mirrored = tmp_path / "ray" / run.relative_to(tmp_path / "local")
        assert contents(mirrored) == contents(run)
        assert strays(mirrored) == []


OF_ITS_OWN = """
import sys
from pathlib import Path

from cli.test_cli_ray import planned
from cli.test_cli_reproduce import tiny
from nsm.experiments import campaign
from nsm.experiments.engines.cluster import RayCluster

with RayCluster(1, "fused") as engine:
    campaign.run(planned(Path(sys.argv[1]), job=tiny()), engine)
    print(engine._ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
"""
INTRUDER = """
import sys

from ray._raylet import GcsClient

print(len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=60)), "nodes")
"""


@pytest.fixture(scope="module")
def its_own(tmp_path_factory):
    """The address of a cluster that an engine has started, and the session that its processes are in."""
    run = [sys.executable, "-c", OF_ITS_OWN, str(tmp_path_factory.mktemp("its-own"))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": os.pathsep.join([*sys.path, str(tests)])}
    with subprocess.Popen(run, **pipes, env=environment, start_new_session=True) as process:
        yield process.stdout.readline().strip(), process.pid
        process.stdin.close()
    assert process.returncode == 0


def test_a_cluster_of_its_own_listens_on_this_machine_alone(its_own):
    _, session = its_own
    listening = listeners(session)
    assert len(listening) >= 4, "the cluster's store, its node, the driver and the worker at least"
    assert {str(address) for address in listening} == {"127.0.0.1"}


def test_a_cluster_of_its_own_lets_in_nobody_without_its_token(its_own, tmp_path):
    address, _ = its_own
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    for token in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}):
        command = [sys.executable, "-c", INTRUDER, address]
        here = {**environment, **token, "HOME": str(tmp_path)}
        refused = subprocess.run(command, env=here, capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "InvalidAuthToken" in refused.stderr


def test_files_of_a_cluster_of_its_own_are_the_users_alone(its_own):
    _, session = its_own
    sockets = {path for path in unix_sockets(session) if path.name == "raylet"}
    assert len(sockets) == 1
    for path in sockets:
        assert any(folder.stat().st_mode & 0o777 == 0o700 for folder in path.parents)


def listeners(session):
    """The addresses at which processes of a session listen."""
    inodes = sockets_of(session)
    lines = [line for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    fields = [line.split() for line in lines]
    return [
        decoded(local.partition(":")[0]) for _, local, _, state, *rest in fields if state == "0A" and rest[5] in inodes
    ]


def decoded(address):
    """An address of /proc/net: words of 32 bits in the machine's order; an IPv4 one within IPv6 is that one."""
    words = [int(address[place : place + 8], 16).to_bytes(4, sys.byteorder) for place in range(0, len(address), 8)]
    found = ipaddress.ip_address(b"".join(words))
    return getattr(found, "ipv4_mapped", None) or found


def unix_sockets(session):
    """The paths of sockets that processes of a session have."""
    inodes = sockets_of(session)
    fields = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    return [Path(field[7]) for field in fields if len(field) == 8 and field[6] in inodes and field[7][0] == "/"]


def sockets_of(session):
    """The inodes of all sockets of a session's processes."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile
            if os.getsid(int(process.name)) == session:
                links = [os.readlink(descriptor) for descriptor in (process / "fd").iterdir()]
                found |= {link[8:-1] for link in links if link.startswith("socket:[")}
    return found


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
        ended = {job.cell.model: status for job, status in campaign.run(jobs, engine, tick).items()}
    assert ended["well"] == ended["after"] == Status("done")
    assert re.match("(the loss|a gradient|a weight) .*; the first bad tensor is ", ended["diverges"].reason)
    assert ended["dies"].word == "failed"
    assert ended["dies"].reason.startswith(f"its worker died {ATTEMPTS} times, the last time {killed[-1]}: ")
    assert len(killed) == ATTEMPTS
    for name in ("diverges", "dies"):
        assert RunDirectory(tmp_path / name).failure().reason == ended[name].reason
    # The other engine finishes what is left.
    with Local(1, "fused") as engine:
        assert campaign.run([dies], engine) == {dies: Status("done")}
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
    assert err.splitlines()[-1].startswith("nsm: stopped and saved")
    run = RunDirectory(metrics.parent)
    assert run.checkpoint("last").step >= run.lines()[-1]["step"], "the step under way was finished and saved"
    assert run.failure() is None
    assert strays(run.path) == []


def test_a_campaign_that_is_stopped_goes_on_with_the_same_bytes(cluster, straight, tmp_path):
    (job,), asked = planned(tmp_path, stopped=long()), []

    def tick(known):
        if campaign.progress(job)[0] > 100 and not asked:
            asked.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    with RayCluster(1, "fused", cluster.address) as engine:
        assert campaign.run([job], engine, tick) == {job: Status("interrupted")}
    stopped = RunDirectory(job.directory).checkpoint("last").step
    assert 100 < stopped < 8000
    seen = []
    with RayCluster(1, "fused", cluster.address) as engine:
        assert campaign.run([job], engine, lambda _: seen.append(campaign.progress(job)[0])) == {job: Status("done")}
    assert min(seen) >= stopped - stopped % 5, "it went on from where it was"
    assert contents(job.directory) == straight


def test_a_run_in_use_is_refused_and_the_others_go_on(cluster, tmp_path):
    used, well = planned(tmp_path, used=tiny(), well=tiny())
    with RunDirectory(used.directory).opened(used.experiment), RayCluster(2, "fused", cluster.address) as engine:
        ended = campaign.run([used, well], engine)
    assert "is in use by another process" in ended[used].reason
    assert ended[well] == Status("done")


def test_a_node_with_other_versions_is_named(cluster, tmp_path, monkeypatch):
    from nsm.experiments.engines import cluster as module

    (job,) = planned(tmp_path, job=tiny())
    true_versions = module.versions()
    monkeypatch.setattr(module, "versions", lambda: {**true_versions, "torch": "1.0"})
    with RayCluster(1, "fused", cluster.address) as engine:
        (status,) = campaign.run([job], engine).values()
    expected = rf"process \d+ on .+ has torch {re.escape(true_versions['torch'])}, other versions than the driver"
    assert re.match(expected, status.reason)


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
        assert campaign.run([job], engine, tick) == {job: Status("done")}
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
    with patch.dict(os.environ):
        said = nsm("reproduce", "single", "--engine", "ray")
    assert (said.code, said.err) == (2, 'nsm: Ray is not installed: pip install "stored-programs[ray]"\n')


@pytest.mark.parametrize("version", ["2.9.3", "2.51.2"])
def test_a_ray_without_tokens_starts_no_cluster(nsm, monkeypatch, tmp_path, version):
    installed = tmp_path / f"ray-{version}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ray\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    options = ["--only", "recall/ntm", "--seeds", "1", "--budget", "1"]
    said = nsm("reproduce", "single", *options, "--engine", "ray", "--out", tmp_path / "runs")
    assert said.code == 2
    assert f"with Ray {version} everybody who reaches the cluster can run code as you" in said.err
    assert 'pip install "ray>=2.52"' in said.err


def test_a_cluster_that_asks_for_a_token_is_one_sentence(cluster, tmp_path):
    command = [*REPRODUCE, "--engine", "ray", "--address", cluster.address, "--out", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment |= {"RAY_AUTH_MODE": "token", "HOME": str(tmp_path)}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"nsm: no Ray cluster at address '{cluster.address}': Token authentication is")
    assert len(refused.stderr.splitlines()) == 1


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
    assert (said.code, said.err) == (2, "nsm: --address needs --engine ray, the engine was local\n")
    said = nsm("reproduce", "single", "--engine", "rey")
    assert (said.code, said.err) == (2, "nsm: engine must be one of 'local', 'ray', was 'rey'; did you mean 'ray'?\n")
