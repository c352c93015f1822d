"""BoTorch's acquisition function, kernels and models: their arguments."""

import numpy as np
import pytest

from neighbours import needs_botorch

needs_botorch()
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel

import misspec as ms
from hostile import attempt, calls, fuzz, works
from misspec.integrations.botorch import EnlargedUpperConfidenceBound, GPyTorchKernel, model_of, multiplier_of

pytestmark = pytest.mark.botorch
X = torch.linspace(0, 1, 4, dtype=torch.float64)[:, None]
GP = SingleTaskGP(X, torch.sin(6 * X))
ENTRIES = {
    "bound": (
        EnlargedUpperConfidenceBound,
        {
            "model": GP, "multiplier": 2.0, "epsilon": 0.1, "enlargement": "paper", "posterior_transform": None,
            "maximize": True, "regularization": 0.1, "observations": 4,
        },
    ),
    "kernel": (GPyTorchKernel, {"kernel": MaternKernel(), "amplitude": 1.0, "transform": None}),
    "model_of": (
        model_of,
        {"model": GP, "norm_bound": 1.0, "noise": 0.1, "delta": 0.1, "domain": ms.Box([(0, 1)])},
    ),
    "multiplier_of": (
        multiplier_of,
        {"model": GP, "norm_bound": 1.0, "noise": 0.1, "delta": 0.1, "width": "mixture"},
    ),
}  # fmt: skip


def evaluated(found):
    if isinstance(found, EnlargedUpperConfidenceBound):
        assert not torch.isnan(found(X[:, None, :])).any()
    if isinstance(found, GPyTorchKernel):
        assert np.isfinite(found(np.array([[0.3]]), np.array([[0.4]]))).all()
    return found


def test_every_entry_of_botorch_works():
    works(ENTRIES)


@fuzz(200, call=calls(ENTRIES))
def test_botorch(call):
    function, arguments = call
    attempt(lambda: evaluated(function(**arguments)))
