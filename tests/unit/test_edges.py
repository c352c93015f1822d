"""What is nearly refused and must be taken, and what is nearly taken and must be refused."""

import threading
import warnings

import numpy as np
import polars as pl
import pytest
import threadpoolctl
from sklearn.gaussian_process.kernels import RBF
from typer.testing import CliRunner

import misspec as ms
from misspec import errors
from misspec.cli import app
from misspec.files import storage
from misspec.threads import LIMIT, one_thread

MODEL = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1)
DOMAIN = ms.Box([(0, 1)]).grid(10)


def test_no_data_is_no_error_in_any_form():
    policy = ms.GPUCB(DOMAIN, MODEL)
    for points, y in (([], []), (np.zeros((0, 1)), np.zeros(0)), ([], pl.Series([], dtype=pl.Float64)), ((), ())):
        policy.observe(points, y)
    assert policy.t == 0


@pytest.mark.parametrize("width", ["mixture", 2.0])
def test_a_width_that_is_the_same_may_be_handed_in_again(width):
    state = ms.GPUCB(DOMAIN, MODEL, width=width).state()
    assert ms.restore(state, width=width).settings["width"] == width
    with pytest.raises(ms.StorageError, match="differs"):
        ms.restore(state, width=3.0)


def test_small_numbers_that_have_no_unit():
    model = ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1, delta=1e-60, offset=1e-60)
    assert (model.delta, model.offset) == (1e-60, 1e-60)
    with pytest.raises(ms.InvalidInput, match="at least 1e-12"):
        ms.Model(RBF(0.2), norm_bound=2.0, noise=0.1, regularization=1e-13)


def test_a_warning_that_is_an_error_leaves_nothing_learnt():
    policy = ms.GPUCB(ms.Box([(0, 1)]), MODEL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="lie outside"):
            policy.observe([[5.0]], [1.0])
    assert policy.t == 0
    with pytest.warns(UserWarning, match="1 of 2 points"):
        policy.observe([[5.0], [0.5]], [1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ms.restore(policy.state()).t == 2  # said once


def test_memory_that_runs_out_is_no_fault_of_a_kernel():
    class Hungry(RBF):
        def __call__(self, *_, **__):
            raise MemoryError

    with pytest.raises(MemoryError):
        ms.GPUCB(DOMAIN, ms.Model(Hungry(0.2), norm_bound=2.0, noise=0.1))


def test_names_are_quoted_as_they_are():
    assert "temp  a" in errors.nearest("temp  x", ["temp  a"])
    assert errors.short("two\n  lines") == "two lines"


def test_a_matrix_that_rounding_makes_singular_is_an_error_of_ours(monkeypatch):
    policy = ms.GPUCB(DOMAIN, MODEL)
    query = policy.ask()

    def singular(*_):
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(policy, "on_tell", singular)
    with pytest.raises(ms.NumericalError, match="larger regularization"):
        policy.tell(query, 1.0)
    monkeypatch.undo()
    policy.tell(query, 1.0)
    assert policy.t == 1


def test_devices_are_no_files():
    with pytest.raises(ms.StorageError, match="no file"):
        ms.GPUCB(DOMAIN, MODEL).save("/dev/stdout")


def test_writes_into_large_folders_need_not_look_for_litter(tmp_path):
    litter = tmp_path / ".a.0123456789ab.part"
    litter.touch()
    storage.replace(tmp_path / "a", b"1", tidy=False)
    assert litter.exists()
    storage.replace(tmp_path / "a", b"2")
    assert not litter.exists()


def test_a_column_that_is_ignored_is_not_the_target(tmp_path):
    rows = "".join(f"{i % 3},{i % 3 + 0.1 * (i % 2)},note\n" for i in range(12))
    (tmp_path / "d.csv").write_text("temp,yield,notes\n" + rows)
    done = CliRunner().invoke(app, ["diagnose", str(tmp_path / "d.csv"), "--ignore", "notes", "--repeats"])
    assert done.exit_code == 0, done.output
    assert "of yield at temp" in done.output
    done = CliRunner().invoke(app, ["diagnose", str(tmp_path / "d.csv"), "--ignore", "yield", "--target", "yield"])
    assert done.exit_code == 1


def test_the_smoothest_matern_is_one():
    done = CliRunner().invoke(app, ["gain", "--kernel", "Matern", "--nu", "inf", "--grid", "5", "--horizon", "10"])
    assert done.exit_code == 0, done.output


def test_a_fork_while_others_work_lifts_the_limit_there():
    inside, done = threading.Event(), threading.Event()

    def work():
        with one_thread():
            inside.set()
            done.wait(30)

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = [library.get_num_threads() for library in LIMIT._blas()]
        assert 2 in before  # some libraries, that of scs for one, never have more than one
        thread = threading.Thread(target=work)
        thread.start()
        assert inside.wait(30)
        assert {library.get_num_threads() for library in LIMIT._blas()} == {1}
        LIMIT.forked()  # what a child does first
        assert [library.get_num_threads() for library in LIMIT._blas()] == before
        done.set()
        thread.join()
    assert not LIMIT._holders
