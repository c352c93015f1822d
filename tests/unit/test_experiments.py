"""Experiments: the same numbers wherever they run, nothing lost, nothing done twice, errors that say what to do."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from sklearn.gaussian_process.kernels import RBF

import misspec as ms
from files import head, started
from misspec import experiments as ex
from misspec.errors import InvalidInput, StorageError
from misspec.experiments.runner import execute, play

HEAD = head(40, 2, [0.0, 0.2], box="[[0, 2]]", grid=21)
PROBLEM = """
[[problems]]
misfit = "random"
"""
POLICIES = """
[[policies]]
kind = "GPUCB"

[[policies]]
kind = "ECGPUCB"

[[policies]]
kind = "PhasedUncertaintySampling"
as_in_paper = true

[[policies]]
kind = "RegretBalancing"
"""
TOML = HEAD + PROBLEM + POLICIES


def experiment(text=TOML):
    return ex.parse(text.encode(), "test.toml")


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """All runs, done once on one core."""
    folder = tmp_path_factory.mktemp("once")
    ex.go(TOML.encode(), folder, cores=1)
    return folder


@pytest.fixture
def done(once, tmp_path):
    """A copy of them, to be changed."""
    return Path(shutil.copytree(once, tmp_path / "done"))


def frames(folder):
    """Every finished run by its name, without the times."""
    found = ex.results(folder)
    return {str(each.run): (each.table, {k: v for k, v in each.facts.items() if k != "seconds"}) for each in found.runs}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, (table, facts) in one.items():
        assert_frame_equal(table, other[name][0], check_exact=True)
        assert facts == other[name][1]


def command(*arguments, **options):
    """misspec in a process of its own."""
    return started("-m", "misspec.cli", *arguments, **options)


def finished(folder):
    return sorted((Path(folder) / "runs").glob("*.parquet"))


# -- what is run -------------------------------------------------------------------------------------------------------


def test_runs_are_the_product_and_have_keys_of_their_own():
    runs = experiment().runs()
    assert len(runs) == 4 * 2 * 2
    assert len({run.key for run in runs}) == len(runs)
    assert {(run.policy, run.epsilon, run.seed) for run in runs} == {
        (policy, epsilon, seed)
        for policy in ("GPUCB", "ECGPUCB", "PhasedUncertaintySampling(as_in_paper=True)", "RegretBalancing")
        for epsilon in (0.0, 0.2)
        for seed in (0, 1)
    }


def test_names_do_not_change_what_a_run_is():
    renamed = TOML.replace('kind = "GPUCB"', 'kind = "GPUCB"\nname = "baseline"')
    assert [run.key for run in experiment(renamed).runs()] == [run.key for run in experiment().runs()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("horizon = 40", "horizon = 41"),
        ("noise = 0.1", "noise = 0.11"),
        ("grid = 21", "grid = 22"),
        ('"random"', '"bump"'),
    ],
)
def test_what_decides_the_result_changes_every_key(old, new):
    keys = {run.key for run in experiment().runs()}
    assert keys.isdisjoint(run.key for run in experiment(TOML.replace(old, new)).runs())


def test_a_run_is_what_simulate_gives_by_hand(once):
    domain = ms.Box([(0, 2)]).grid(21)
    model = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
    makers = {
        "GPUCB": lambda p, s: ms.GPUCB(domain, model, seed=s),
        "ECGPUCB": lambda p, s: ms.ECGPUCB(domain, model, epsilon=p.epsilon, seed=s),
        "PhasedUncertaintySampling(as_in_paper=True)": lambda p, s: ms.PhasedUncertaintySampling.as_in_paper(
            domain, model, horizon=40, seed=s
        ),
        "RegretBalancing": lambda p, s: ms.RegretBalancing(domain, model, horizon=40, seed=s),
    }
    results = ex.results(once)
    assert len(results.runs) == 16
    for each in results.runs:
        run = each.run
        problem = ms.problems.misspecified(domain, model, run.epsilon, "random", seed=run.seed)
        policy = makers[run.policy](problem, run.seed)
        trace = ms.simulate(policy, problem, 40, seed=run.seed)
        np.testing.assert_array_equal(each.regret, trace.regret)
        np.testing.assert_array_equal(each.in_class_regret, trace.in_class_regret)
        table = each.table
        for name in ("index", "y", "regret", "mean", "std"):
            np.testing.assert_array_equal(table[name], getattr(trace, name))
        np.testing.assert_array_equal(table["x1"], trace.x[:, 0])
        assert each.facts["recommended_regret"] == trace.recommended_regret
        band = policy.band()
        last = each.looks.row(-1, named=True)
        assert last["round"] == 40
        inside = (band.lower <= problem.values) & (problem.values <= band.upper)
        assert last["covered"] == inside.mean()
        if run.seed == 0:
            np.testing.assert_array_equal(last["band_lower"], band.lower)
            np.testing.assert_array_equal(last["band_upper"], band.upper)
            np.testing.assert_array_equal(each.facts["truth"], problem.values)
        else:
            assert last["band_lower"] is None
            assert not each.pictured


@pytest.mark.parametrize(
    "problem",
    [
        'kind = "rough_truth"',
        'kind = "wrong_length_scale"\nfactor = 0.5',
        'kind = "wrong_kernel"\nkernel = { name = "Matern", length_scale = 0.3, nu = 0.5 }',
        'kind = "nonstationary"',
        'kind = "needle"\nheight = 0.4',
        'kind = "trap"',
        'kind = "svm_digits"',
        'kind = "digits_bandit"\nimages = 20',
        "actions = 5",
        'misfit = "bump"\ndomain = { points = [[0.1, 0.2], [0.4, 0.5], [0.9, 0.1]] }',
    ],
)
def test_every_problem_can_be_run(problem):
    text = f'{HEAD}\n[[problems]]\n{problem}\n[[policies]]\nkind = "ECGPUCB"\n[[policies]]\nkind = "ThompsonSampling"'
    for run in experiment(text).runs()[:2]:
        outcome = execute(run)
        assert isinstance(outcome, bytes), outcome


def test_the_demo_is_valid_and_has_all_six_forms():
    demo = ex.parse(ex.demo(), "demo.toml")
    kinds = [(policy.kind, policy.as_in_paper) for policy in demo.policies]
    for kind in ("GPUCB", "ECGPUCB", "PhasedUncertaintySampling", "RegretBalancing"):
        assert (kind, True) in kinds
        assert (kind, False) in kinds
    assert ("InsuredUCB", False) in kinds  # the one that the docs recommend
    assert len(demo.all_seeds) > 1
    assert len(demo.epsilons) > 1


# -- same bits, nothing lost -------------------------------------------------------------------------------------------


def test_one_core_many_cores_and_dask_give_the_same_bits(once, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(TOML)
    for name, options in (("two", ["--cores", "2"]), ("dask", ["--dask", "local"])):
        with command("run", file, "--into", tmp_path / name, *options) as process:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
        assert "ECGPUCB" in out
        assert_same(frames(once), frames(tmp_path / name))


def test_runs_in_threads_of_one_process_take_turns(once, tmp_path):
    """As in a Dask worker with several threads: the number of BLAS threads belongs to the process."""
    from concurrent.futures import ThreadPoolExecutor

    import threadpoolctl

    def threads():
        return [each["num_threads"] for each in threadpoolctl.threadpool_info()]

    before = threads()
    folder, runs = ex.Folder(tmp_path / "threads"), experiment().runs()
    with folder.locked(TOML.encode(), "test.toml"), ThreadPoolExecutor(2) as pool:
        for run, content in zip(runs, pool.map(execute, runs), strict=True):
            folder.write(run, content)
    assert_same(frames(once), frames(tmp_path / "threads"))
    assert threads() == before


@pytest.mark.slow
def test_a_dask_scheduler_is_found_by_its_address(once, tmp_path):
    script = """
from pathlib import Path
from distributed import LocalCluster
from misspec import experiments as ex
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        progress = ex.go(Path("small.toml").read_bytes(), "dask", dask=cluster.scheduler_address)
        assert progress.runs == progress.of == 16, progress
"""
    (tmp_path / "small.toml").write_text(TOML)
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert_same(frames(once), frames(tmp_path / "dask"))


def script(tmp_path, text):
    """Run a script of its own beside an experiment."""
    (tmp_path / "small.toml").write_text(TOML.replace("seeds = 2", "seeds = 1"))
    (tmp_path / "script.py").write_text(text)
    line = [sys.executable, "script.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_a_run_that_kills_its_dask_worker_is_a_failed_run(tmp_path):
    script(
        tmp_path,
        """
import os
from pathlib import Path
import dask
from distributed import LocalCluster
from misspec import experiments as ex
from misspec.experiments import runner

def deadly(run, allow=()):
    from misspec.experiments import runner
    if run.policy == "GPUCB":
        os._exit(1)
    return runner.execute(run)

if __name__ == "__main__":
    # one death per deadly run, and two workers: Dask's nannies do not always restart one that dies again and again
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    runner.execute = deadly
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=60) as cluster:
        progress = ex.go(Path("small.toml").read_bytes(), "killed", dask=cluster.scheduler_address)
    assert progress.runs == 8, progress
    assert {run.policy for run in progress.failed} >= {"GPUCB"}, progress.failed
    assert all("killed again and again" in reason for reason in progress.failed.values()), progress.failed
""",
    )


@pytest.mark.slow
def test_a_dask_scheduler_that_goes_away_is_a_message_and_what_is_done_stays(tmp_path):
    script(
        tmp_path,
        """
import json, subprocess, sys, time
from pathlib import Path
from misspec import experiments as ex
from misspec.errors import InvalidInput

if __name__ == "__main__":
    start = [sys.executable, "-m"]
    common = ["--scheduler-file", "s.json", "--no-dashboard"]
    scheduler = subprocess.Popen([*start, "distributed.cli.dask_scheduler", "--port", "0", *common])
    worker = subprocess.Popen([*start, "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", *common])
    try:
        while not Path("s.json").exists():
            time.sleep(0.1)
        address = json.loads(Path("s.json").read_text())["address"]
        try:
            ex.go(
                Path("small.toml").read_bytes(), "stopped", dask=address,
                show=lambda p: p.runs == 2 and scheduler.kill(),
            )
        except InvalidInput as error:
            assert "the Dask cluster failed" in str(error), error
            assert "finished runs are kept" in str(error), error
        else:
            raise AssertionError("the scheduler was killed, and nothing was said")
        assert len(ex.results("stopped").runs) >= 2
    finally:
        scheduler.kill()
        worker.kill()
""",
    )


def test_no_dask_scheduler_is_a_clear_message(tmp_path, monkeypatch):
    monkeypatch.setattr("misspec.integrations.dask.PATIENCE", "1s")
    with pytest.raises(InvalidInput, match=r"cannot reach a Dask scheduler at 'nowhere:1'.*--dask local"):
        ex.go(TOML.encode(), tmp_path, dask="nowhere:1")


def test_only_what_is_missing_is_done(done):
    before = frames(done)
    times = {path: path.stat().st_mtime_ns for path in finished(done)}
    gone = finished(done)[3]
    gone.unlink()
    progress = ex.go(TOML.encode(), done, cores=1)
    assert (progress.before, progress.of, progress.runs) == (15, 1, 1)
    assert_same(before, frames(done))
    now = {path: path.stat().st_mtime_ns for path in finished(done)}
    assert {path for path in times if now.get(path) != times[path]} == {gone}


def test_an_edited_experiment_keeps_what_is_still_valid(done):
    longer = TOML.replace("seeds = 2", "seeds = 3")
    progress = ex.go(longer.encode(), done, cores=1)
    assert (progress.before, progress.of) == (16, 8)
    assert len(ex.results(done).runs) == 24


def failing(settings, progress=None):
    """Stands in for `play`: some runs have no luck."""
    if settings["seed"] == 1 and settings["policy"]["kind"] == "GPUCB":
        raise InvalidInput("no luck")
    if settings["seed"] == 1 and settings["policy"]["kind"] == "ECGPUCB":
        raise KeyError("a defect")
    return play(settings, progress)


def test_a_run_that_fails_stops_nothing_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("misspec.experiments.runner.play", failing)
    progress = ex.go(TOML.encode(), tmp_path, cores=1)
    assert (progress.of, progress.runs) == (16, 16)
    reasons = {(run.policy, run.seed): reason for run, reason in progress.failed.items()}
    assert reasons == {("GPUCB", 1): "no luck", ("ECGPUCB", 1): "unexpected KeyError: 'a defect'"}
    assert len(ex.results(tmp_path).runs) == 16 - 4
    monkeypatch.undo()
    assert ex.go(TOML.encode(), tmp_path, cores=1).runs == 4


def flipped(content, rng):
    """One bit of it the other way round."""
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :]


@pytest.mark.parametrize("damage", ["truncated", "emptied", "not parquet", "a bit", "another bit", "a third bit"])
def test_a_damaged_file_is_named_by_the_report_and_done_again_by_a_run(done, damage):
    before = frames(done)
    victim = finished(done)[5]
    content = victim.read_bytes()
    changed = {"truncated": content[: len(content) // 2], "emptied": b"", "not parquet": b"x" * 999}
    victim.write_bytes(changed[damage] if damage in changed else flipped(content, random.Random(damage)))
    with pytest.raises(StorageError, match=rf"{victim.name} is damaged .*misspec run .* sets it aside"):
        ex.results(done)
    progress = ex.go(TOML.encode(), done, cores=1)
    assert progress.of == 1
    assert len(progress.news) == 1
    assert victim.name in progress.news[0]
    assert "doing it again" in progress.news[0]
    assert victim.with_suffix(".damaged").exists()
    assert_same(before, frames(done))


def rewritten(folder, run, change):
    """The file of a run with other facts, and a checksum to match."""
    path = folder.files()[run.key]
    facts = change(json.loads(pl.read_parquet_metadata(path)["misspec"]))
    buffer = io.BytesIO()
    pl.read_parquet(path).write_parquet(buffer, metadata={"misspec": json.dumps(facts)})
    folder.write(run, buffer.getvalue())


def test_a_file_of_another_run_or_of_a_newer_format_is_refused_and_kept(done):
    folder, run = ex.Folder(done), experiment().runs()[0]
    rewritten(folder, run, lambda facts: facts | {"format": 99})
    for call in (lambda: ex.results(done), lambda: ex.go(TOML.encode(), done, cores=1)):
        with pytest.raises(StorageError, match="format 99, newer than 1; update misspec"):
            call()
    rewritten(folder, run, lambda facts: facts | {"format": 1, "settings": {}})
    with pytest.raises(StorageError, match="holds another run than its name says"):
        ex.results(done)
    assert len(finished(done)) == 16


def test_results_of_another_version_are_read_but_done_again(done):
    before = frames(done)
    rewritten(ex.Folder(done), experiment().runs()[0], lambda facts: facts | {"misspec": "0.0.1"})
    assert len(ex.results(done).runs) == 16
    progress = ex.go(TOML.encode(), done, cores=1)
    assert progress.runs == 1
    assert "1 runs were made by another misspec than" in progress.news[0]
    assert_same(before, frames(done))
    assert len(finished(done)) == 16


def test_two_runners_do_not_share_a_folder(tmp_path):
    other = TOML.replace("seeds = 2", "seeds = 1").encode()
    folder = ex.Folder(tmp_path)
    with folder.locked(TOML.encode(), "mine.toml"), pytest.raises(StorageError, match="another `misspec run` works in"):
        ex.go(other, tmp_path, cores=1, name="mine.toml")
    assert (tmp_path / "experiment.toml").read_bytes() == TOML.encode()  # a runner that is refused changes nothing
    assert ex.go(TOML.encode(), tmp_path, cores=1, name="mine.toml").runs == 16


def test_two_experiments_do_not_share_a_folder(tmp_path):
    ex.go(TOML.encode(), tmp_path / "there", cores=1, name="mine.toml")
    with pytest.raises(StorageError, match=r"holds the results of mine.toml; choose another folder for demo.toml"):
        ex.go(ex.demo(), tmp_path / "there", cores=1, name="demo.toml")
    assert (tmp_path / "there" / "experiment.toml").read_bytes() == TOML.encode()
    assert ex.go(TOML.encode(), tmp_path / "there", cores=1, name="there/experiment.toml").of == 0
    (tmp_path / "experiment.toml").write_text("precious")
    with pytest.raises(StorageError, match=r"has an experiment.toml that no run has put there"):
        ex.go(TOML.encode(), tmp_path, cores=1)
    assert (tmp_path / "experiment.toml").read_text() == "precious"


LONG = (
    TOML.replace("seeds = 2", "seeds = 5").replace("horizon = 40", "horizon = 400").replace("grid = 21", "grid = 200")
)


@pytest.mark.parametrize(("kills", "runs"), [(2, 16), pytest.param(10, 40, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_ends_with_the_same_table(tmp_path, kills, runs):
    """kill -9, again and again, on one core and on two: nothing lost, nothing done twice, no process left."""
    rng = random.Random(6)
    file, text = tmp_path / "long.toml", LONG.replace("seeds = 5", f"seeds = {runs // 8}")
    file.write_text(text)
    times: dict[Path, int] = {}
    counts = []
    for kill in range(kills):
        with command("run", file, "--cores", 1 + kill % 2, "--into", tmp_path / "killed") as process:
            wanted = len(times) + rng.randint(0, 4)
            deadline = time.monotonic() + 60
            while len(finished(tmp_path / "killed")) < wanted and process.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        now = {path: path.stat().st_mtime_ns for path in finished(tmp_path / "killed")}
        assert times.items() <= now.items()  # what was finished is still there, and was not done again
        times = now
        counts.append(len(times))
    assert counts[0] < counts[-1] < runs, counts  # the kills came in the middle of it
    with command("run", file, "--into", tmp_path / "killed") as process:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert f"{counts[-1]} of {runs} runs were done before" in out
    ex.go(text.encode(), tmp_path / "undisturbed", cores=1)
    assert len(frames(tmp_path / "killed")) == runs
    assert_same(frames(tmp_path / "killed"), frames(tmp_path / "undisturbed"))
    assert times.items() <= {path: path.stat().st_mtime_ns for path in finished(tmp_path / "killed")}.items()
    assert not list((tmp_path / "killed" / "runs").glob(".*.part"))


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    file = tmp_path / "long.toml"
    file.write_text(LONG.replace("horizon = 400", "horizon = 20000"))
    with command("run", file, "--cores", 2) as process:
        deadline = time.monotonic() + 60
        while len(members := in_group(process.pid)) < 3:  # the parent, and two workers at least
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        while in_group(process.pid):
            assert time.monotonic() < deadline, f"still alive: {members}"
            time.sleep(0.05)


def in_group(group):
    """Living processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def test_ctrl_c_ends_at_once_and_says_how_to_continue(tmp_path):
    file = tmp_path / "long.toml"
    file.write_text(LONG)
    with command("run", file, "--cores", 2, "--into", "my results", cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not finished(tmp_path / "my results"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert len(err.splitlines()) == 1
    assert "of 40 runs are finished and kept in my results" in err
    assert f"go on with: misspec run {file} --into 'my results' --cores 2" in err


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_long_runs(tmp_path):
    (tmp_path / "slow.toml").write_text(LONG.replace("horizon = 400", "horizon = 1000000"))  # minutes each
    with command("run", "slow.toml", "--cores", 2, cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while len(in_group(process.pid)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(4)  # the workers have begun
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "0 of 40 runs are finished" in err


# -- errors name the file, the key and the remedy ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("horizon = \n", r"test.toml is not valid TOML: .*line 1.*; repair that line"),
        (TOML.replace("horizon = 40", ""), r"test.toml: horizon: is missing; add it"),
        (TOML.replace("horizon = 40", "horizon = 0"), r"horizon: input should be greater than or equal to 1, got 0"),
        (TOML.replace("horizon = 40", "horizons = 40\nhorizon = 40"), r"horizons: .*did you mean 'horizon'\?"),
        (TOML.replace('"GPUCB"', '"GPUBC"'), r"policies\[0\]: unknown policy 'GPUBC'; did you mean 'GPUCB'\?"),
        (TOML.replace('"ECGPUCB"', '"ecgpucb"'), r"policies\[1\]: unknown policy .*did you mean 'ECGPUCB'\?"),
        (TOML.replace('kind = "GPUCB"', 'kind = "GPUCB"\ngroundd = true'), r"'groundd'; did you mean 'grounded'\?"),
        (TOML.replace('kind = "GPUCB"', 'kind = "GPUCB"\nwidth = "wide"'), r"policies\[0\] \(GPUCB.*\): .*width"),
        (TOML.replace('kind = "GPUCB"', 'kind = "ThompsonSampling"\nas_in_paper = true'), "leave as_in_paper out"),
        (TOML.replace('kind = "GPUCB"', 'kind = "ECGPUCB"'), r"policies: two are called 'ECGPUCB'"),
        (TOML.replace('misfit = "random"', 'kind = "mispecified"'), r"\[0\]: unknown problem .*'misspecified'\?"),
        (TOML.replace('misfit = "random"', "epsilon = 0.1"), r"problems\[0\]: .*did you mean 'epsilons'\?"),
        (TOML.replace('misfit = "random"', 'misfitt = "random"'), r"problems\[0\]: .*did you mean 'misfit'\?"),
        (TOML.replace("epsilons = [0.0, 0.2]", ""), r"problems\[0\] .*needs epsilons; add epsilons"),
        (TOML.replace("epsilons = [0.0, 0.2]", "epsilons = [-0.1]"), r"epsilons\[0\]: .*greater than or equal to 0"),
        (TOML.replace("noise = 0.1", 'noise = "low"'), r"model.noise: input should be a valid number.*got 'low'"),
        (TOML.replace("noise = 0.1", "noise = -1.0"), r"model: noise \(σ\) must be a finite number ≥ 0, got -1.0"),
        (TOML.replace('name = "RBF"', 'name = "RBV"'), r"model: unknown kernel 'RBV'; did you mean 'RBF'\?"),
        (TOML.replace("length_scale", "lengthscale"), r"did you mean 'length_scale'\?"),
        (TOML.replace("grid = 21", ""), r"domain: a box needs either grid"),
        (TOML.replace("[[0, 2]]", "[[2, 0]]"), r"domain: bounds of a Box must have low < high"),
        (TOML.replace('"random"', '"random"\nactions = 3'), r"plays no contextual problem"),
        (TOML.replace("seeds = 2", "seeds = [1, 1]"), r"seeds: give a number, or a list of different seeds"),
        (HEAD + PROBLEM, r"policies: is missing"),
        (TOML.replace("horizon = 40", "horizn = 40"), r"test.toml: horizn: .*did you mean 'horizon'\?.*and 1 more"),
        (TOML.replace("grid = 21", "gird = 21"), r"domain.gird: .*'grid'\? \(known: box, cover, grid, points\)"),
        (TOML.replace("seeds = 2", "seeds = 0"), r"seeds: give a number from 1 on, or a list of seeds, got 0"),
        (TOML.replace("seeds = 2", 'seeds = "3"'), r"seeds: give a number from 1 on, or a list of seeds, got '3'"),
        (TOML.replace("noise = 0.1", 'noise = "0.1"'), r"model.noise: input should be a valid number"),
        (TOML.replace("epsilons = [0.0, 0.2]", "epsilons = [true]"), r"epsilons\[0\]: input should be a valid number"),
        (TOML.replace("[[0, 2]]", "[0, 2]"), r"domain.box: .*as in \[\[0, 1\]\]; got \[0, 2\]"),
        (TOML.replace("grid = 21", 'grid = "x"'), r"domain.grid: input should be"),
        (TOML.replace('{ name = "RBF", length_scale = 0.2 }', '"RBF"'), r"model: a kernel is a table with a name"),
        (TOML.replace("= 0.2 }", "= [0.2, 0.3] }"), r"problems\[0\] .*: .*dimension"),
        (TOML.replace("= 0.2 }", "= -1 }"), r"model: kernel RBF: length_scale must be a number above 0"),
        (TOML.replace("= 0.2 }", '= "abc" }'), r"model: kernel RBF: length_scale must be a number above 0"),
        (HEAD + PROBLEM + '[policies]\nkind = "GPUCB"', r"policies: write two brackets, as in \[\[policies\]\]"),
        (TOML.replace('"random"', '"signs"'), r"problems\[0\] .*: misfit must be one of none, random, ripple"),
        (TOML.replace('"random"', '"ripple"\nwavelength = 0.05'), r"problems\[0\] .* falls between the candidates"),
        (TOML.replace('"random"', '"random"\nwavelength = "a"'), r"problems\[0\] .*: wavelength must be a finite"),
        (TOML.replace('misfit = "random"', 'kind = "needle"\nheight = 0'), r"problems\[0\] .*height must be"),
        (TOML.replace('misfit = "random"', 'kind = "trap"\ndomain = { points = [[1.0]] }'), "brings its own domain"),
        (HEAD + PROBLEM + 'actions = 500\n[[policies]]\nkind = "GPUCB"', r"actions must be at most the 21 candidates"),
        (HEAD + '[[problems]]\nkind = "needle"\nactions = 99\n[[policies]]\nkind = "GPUCB"', "at most the 21"),
        (TOML.replace('kind = "GPUCB"', 'kind = "GPUCB"\nhorizon = 9'), r"GPUCB has no argument 'horizon'"),
        ("x = " + "[" * 5000, r"test.toml"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_clear_line(text, says):
    with pytest.raises(InvalidInput, match=says) as caught:
        experiment(text)
    assert str(caught.value).startswith("test.toml")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InvalidInput, match=r"nothing.toml does not exist; `misspec demo` leaves"):
        ex.read(tmp_path / "nothing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not text in UTF-8"):
        ex.read(tmp_path / "binary.toml")
    with pytest.raises(InvalidInput, match="cannot read"):
        ex.read(tmp_path)
    with pytest.raises(InvalidInput, match=r"holds no experiment.toml; hand in a folder that `misspec run`"):
        ex.results(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot write to the folder .*; choose one that is writable with --into"):
        ex.go(TOML.encode(), tmp_path / "file" / "results", cores=1)


# -- in Python ---------------------------------------------------------------------------------------------------------


def test_compare_is_a_table_of_simulations():
    domain, model = ms.Box([(0, 1)]).grid(15), ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
    worlds = [ms.problems.misspecified(domain, model, 0.1, seed=seed) for seed in (0, 1)]
    seen = []
    table = ms.experiments.compare(
        {"GP": lambda p: ms.GPUCB(p.domain, p.model), "EC": lambda p: ms.ECGPUCB(p.domain, p.model, epsilon=p.epsilon)},
        worlds,
        n=30,
        seeds=[3, 4],
        progress=lambda done, of: seen.append((done, of)),
    )
    assert seen == [(i, 8) for i in range(1, 9)]
    assert table.select("policy", "seed").rows()[:4] == [("GP", 3), ("GP", 4), ("EC", 3), ("EC", 4)]
    trace = ms.simulate(ms.ECGPUCB(domain, model, epsilon=0.1), worlds[1], 30, seed=4)
    last = table.row(-1, named=True)
    assert last["regret"] == trace.regret.mean()
    assert last["in_class_regret"] == trace.in_class_regret.mean()
    assert last["recommended_regret"] == trace.recommended_regret


@pytest.mark.parametrize(
    ("policies", "problems", "seeds"),
    [({}, None, 2), ({"x": 3}, None, 2), (["x"], None, 2), ({"x": ms.GPUCB}, [], 2), ({"x": ms.GPUCB}, None, [])],
)
def test_compare_refuses_what_it_cannot_compare(policies, problems, seeds):
    problem = ms.problems.trap() if problems is None else problems
    with pytest.raises(InvalidInput, match="must be"):
        ms.experiments.compare(policies, problem, 5, seeds=seeds)


def test_compare_says_which_policy_cannot_be_made():
    with pytest.raises(InvalidInput, match=r"policies\['bare'\] must make a policy from a problem alone"):
        ms.experiments.compare({"bare": ms.GPUCB}, ms.problems.trap(), 5)


def test_the_extra_modules_load_when_they_are_used():
    assert ms.experiments is ex
    with pytest.raises(AttributeError, match="no attribute 'experimnts'"):
        _ = ms.experimnts
