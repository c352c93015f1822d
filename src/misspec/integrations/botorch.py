"""BoTorch: EC-GP-UCB's score as an acquisition function, GPyTorch's kernels and BoTorch's models as ours.

    σ(x)     posterior standard deviation of f at x, without the noise of results, in units of the outcome
    Λ        noise variances of the n results, one each                                              (n,)
    ζ(x)     (K + Λ)⁻¹k(x): the weights of the posterior mean, and as they are for outcomes as told,
             since standardising them is affine                                                      (n,)
    λ        what stands for all of Λ: the harmonic mean, in units of the outcome squared

Results at one point have weights of one sign, for ζ = Λ⁻¹(k(x) − Kζ) and they share a row of K. So ‖ζ‖₁ is the same
whether it is summed over results, as here, or over distinct points, as in `posterior/view.py`.
"""

from __future__ import annotations

import copy
import math
import os
import threading
from typing import Any

import numpy as np

from misspec import kernels
from misspec.domains import Box, Domain
from misspec.errors import Array, InvalidInput, callback, flag, instance, number, one_of, shown, whole
from misspec.model import Model
from misspec.theory import widths
from misspec.theory.widths import Width
from misspec.threads import lock_after_fork

try:
    import torch
    from botorch.acquisition.analytic import AnalyticAcquisitionFunction
    from botorch.acquisition.objective import ScalarizedPosteriorTransform
    from botorch.models.gp_regression import SingleTaskGP
    from botorch.models.gpytorch import GPyTorchModel, MultiTaskGPyTorchModel
    from botorch.models.model import Model as BotorchModel
    from botorch.models.model import ModelList
    from botorch.models.transforms.input import ChainedInputTransform, Normalize
    from botorch.models.transforms.outcome import ChainedOutcomeTransform, Standardize
    from botorch.models.utils import gpt_posterior_settings
    from botorch.utils.transforms import average_over_ensemble_models, is_ensemble, t_batch_mode_transform
    from gpytorch import kernels as theirs
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.means import ConstantMean, ZeroMean
    from gpytorch.models import ExactGP
    from linear_operator import to_dense
    from linear_operator.operators import DiagLinearOperator
    from linear_operator.utils.cholesky import psd_safe_cholesky
    from torch import Tensor
except ImportError as error:
    raise ImportError(
        f"misspec.integrations.botorch needs the extra botorch: pip install 'misspec[botorch]' ({error})"
    ) from error

MOST_NUMBERS = 1 << 21  # coordinates of pairs of points that a kernel is handed at once
# GPyTorch evaluates kernels lazily, and changes global settings and the kernel itself for as long as that takes
_EVALUATING = threading.RLock()


def _forked() -> None:
    """A process that is forked off does not wait for a thread that it does not have."""
    global _EVALUATING  # a lock of the process
    _EVALUATING = lock_after_fork(_EVALUATING)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class EnlargedUpperConfidenceBound(AnalyticAcquisitionFunction):
    """μ(x) + multiplier·σ(x) + enlargement(x), the score of EC-GP-UCB, for one point at a time (q = 1).

    model         any single-output model of BoTorch
    multiplier    the factor on σ, where BoTorch's UpperConfidenceBound has its square; `multiplier_of`: the theory's
    epsilon       ε, how far the truth is from what the model can be, in units of the outcome
    enlargement   "exact" (ε‖ζ(x)‖₁, the largest bias that a misfit within ±ε can cause), "norm2" (ε√t‖ζ(x)‖₂) or
                  "paper" (ε√t/√λ·σ(x)), t = n + 1. The last two are never below the first; with equal noise
                  everywhere, "paper" is never below "norm2"
    maximize      False for an outcome that is to be small: −μ in the place of μ
    posterior_transform   none, or a ScalarizedPosteriorTransform of the one outcome; ε stays in units of the outcome
    regularization, observations   λ and n for "paper", from the model where that is an exact GP

    The weights need an exact GP: SingleTaskGP and those like it, with any kernel, mean and input transform, outcomes
    as they are or standardised, noise learnt or given, and ensembles of them (fully Bayesian models), over which the
    score is averaged. Any other model takes "paper" only, with λ and n handed in.
    """

    def __init__(
        self,
        model: BotorchModel,
        multiplier: float,
        epsilon: float,
        enlargement: str = "exact",
        posterior_transform: ScalarizedPosteriorTransform | None = None,
        maximize: bool = True,
        *,
        regularization: float | None = None,
        observations: int | None = None,
    ) -> None:
        outputs = getattr(model, "num_outputs", None)
        if outputs != 1:
            got = type(model).__name__ if outputs is None else f"{outputs} outputs"
            raise InvalidInput(f"model must be a model of BoTorch with one output, got {got}; take one per output")
        if posterior_transform is not None and not isinstance(posterior_transform, ScalarizedPosteriorTransform):
            raise InvalidInput(
                "posterior_transform must be a ScalarizedPosteriorTransform, since ε is scaled with the outcome; "
                f"got {type(posterior_transform).__name__}"
            )
        super().__init__(model=model, posterior_transform=posterior_transform)
        self.multiplier = number("multiplier", multiplier, at_least=0)
        self.epsilon = number("epsilon", epsilon, at_least=0)
        self.enlargement = one_of("enlargement", enlargement, widths.ENLARGEMENTS)
        self.maximize = flag("maximize", maximize)
        self.regularization = None if regularization is None else number("regularization (λ)", regularization, above=0)
        self.observations = None if observations is None else whole("observations", observations)
        _affine(_inner(model))  # refuses outcomes that the model sees otherwise than standardised
        if enlargement != "paper" and (regularization is not None or observations is not None):
            raise InvalidInput('regularization and observations are for enlargement="paper"; leave them out')
        if _exact_gp(model) is None and self.epsilon > 0 and (regularization is None or observations is None):
            needs = "regularization=, the variance of the noise in units of the outcome squared, and observations="
            if enlargement == "paper":
                raise InvalidInput(f'enlargement="paper" for {type(model).__name__} needs {needs}, how many results')
            raise InvalidInput(
                f"enlargement={shown(enlargement)} needs the weights of an exact GP, as a SingleTaskGP has; "
                f'{type(model).__name__} has none: use enlargement="paper" with {needs}, how many results'
            )
        self._kept: tuple[Any, _Weights] | None = None

    @t_batch_mode_transform(expected_q=1)
    @average_over_ensemble_models  # type: ignore[arg-type]  # annotated for functions that take any acquisition function
    def forward(self, X: Any) -> Any:
        """The score at X, shape (*t-batch, 1, d), to be maximised: shape (*t-batch,)."""
        mean, sigma = self._mean_and_sigma(X)
        assert sigma is not None
        upper = (mean if self.maximize else -mean) + self.multiplier * sigma
        return (upper + self._enlarged(X, sigma) if self.epsilon > 0 else upper).squeeze(-1)

    def _enlarged(self, X: Tensor, sigma: Tensor) -> Tensor:
        """The enlargement, of the shape of σ: (*t-batch, 1), with the ensemble before the last."""
        if self.enlargement == "paper":
            n = self._weights().n if self.observations is None else self.observations
            ridge = torch.as_tensor(self._weights().ridge if self.regularization is None else self.regularization)
            # σ is that of the transformed outcome, and λ of the outcome itself: so ε is transformed too
            return self.epsilon * torch.sqrt((n + 1) / ridge).unsqueeze(-1).to(sigma) * sigma
        weights = self._weights()
        zeta = weights.at(X.unsqueeze(-3) if is_ensemble(self.model) else X)
        if self.enlargement == "exact":
            norm = zeta.abs().sum(-1)
        else:
            norm = math.sqrt(weights.n + 1) * torch.linalg.vector_norm(zeta, dim=-1)
        if self.posterior_transform is not None:
            factor: Any = self.posterior_transform.weights
            norm = norm * factor.abs().to(norm)
        return (self.epsilon * norm).to(sigma)

    def _weights(self) -> _Weights:
        """Weights of the model as it is now: GPyTorch makes a new strategy for prediction whenever it changes."""
        gp = _exact_gp(self.model)
        if self._kept is None or self._kept[0] is not gp.prediction_strategy:
            self._kept = (gp.prediction_strategy, _Weights(gp))
        return self._kept[1]


class _Weights:
    """ζ(x) of an exact GP, from the model's own prior and likelihood. In double precision, from whatever K is in."""

    def __init__(self, gp: Any) -> None:
        gp.eval()
        self._gp = gp
        (inputs,) = gp.train_inputs
        self.n = int(inputs.shape[-2])
        with torch.no_grad(), gpt_posterior_settings():
            prior = gp.forward(inputs)
            nothing = DiagLinearOperator(torch.zeros_like(prior.mean))
            self.noise = gp.likelihood(MultivariateNormal(prior.mean, nothing), [inputs]).variance.double()  # Λ
            K = prior.lazy_covariance_matrix.to_dense().double()
            self._L = psd_safe_cholesky(K + torch.diag_embed(self.noise))
        self.offset, self.unit = _affine(gp)
        self.ridge = self.unit**2 / (1.0 / self.noise).mean(-1)  # λ

    def log_det(self) -> float:
        """log det(I + Λ⁻¹K)."""
        return float(2.0 * self._L.diagonal().log().sum() - self.noise.log().sum())

    def solve(self, values: Tensor) -> Tensor:
        """(K + Λ)⁻¹ times the rows of values, shape (*any, *batch, n): any rows share one factorisation."""
        batch = self._L.shape[:-2]
        rows = values.double().reshape(-1, *batch, self.n).movedim(0, -1)
        return torch.cholesky_solve(rows, self._L).movedim(-1, 0).reshape(values.shape)

    def at(self, X: Tensor) -> Tensor:
        """ζ at X, shape (*any, *batch, 1, d), with its gradient: shape (*any, *batch, 1, n)."""
        (inputs,) = self._gp.train_inputs
        with gpt_posterior_settings():
            X = self._gp.transform_inputs(X)
            if X.shape[-2] != 1:
                raise InvalidInput("input transforms that make several points of one leave no weights to look at")
            shape = torch.broadcast_shapes(X.shape[:-2], inputs.shape[:-2])
            joint = torch.cat([each.expand(*shape, *each.shape[-2:]) for each in (inputs, X)], dim=-2)
            # sliced before it is evaluated: K itself is not computed again
            k = self._gp.forward(joint).lazy_covariance_matrix[..., self.n :, : self.n].to_dense()
        return self.solve(k.squeeze(-2)).unsqueeze(-2)


def _inner(model: Any) -> Any:
    """The model in a list of one."""
    return model.models[0] if isinstance(model, ModelList) and len(model.models) == 1 else model


def _exact_gp(model: Any) -> Any:
    """The model where its mean is prior + ζ·(results − prior) with ζ as above; None for any other."""
    gp = _inner(model)
    exact = isinstance(gp, ExactGP) and isinstance(gp, GPyTorchModel) and not isinstance(gp, MultiTaskGPyTorchModel)
    return gp if exact and gp.train_inputs is not None and len(gp.train_inputs) == 1 else None


def _standardises(transform: Any) -> bool:
    if type(transform) is ChainedOutcomeTransform:
        return all(_standardises(each) for each in transform.values())
    return type(transform) is Standardize


def _affine(model: Any) -> tuple[Tensor, Tensor]:
    """Outcome = offset + unit·(what the model sees of it): both, one for each of a batch."""
    transform = getattr(model, "outcome_transform", None)
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    if transform is not None:
        if not _standardises(transform):
            raise InvalidInput(
                f"outcomes may be standardised, and nothing else, got {type(transform).__name__}: what is within ±ε of "
                "an outcome is not of what the model sees; transform the outcomes first, and give ε in their units"
            )
        with torch.no_grad():
            ends = transform.untransform(ends.to(next(transform.buffers()).device))[0]
    return ends[..., 0, 0], ends[..., 1, 0] - ends[..., 0, 0]


# -- as kernels and models of misspec ----------------------------------------------------------------------------------


class GPyTorchKernel:
    """k(x, z) = kernel(T(x), T(z)) / amplitude: a kernel of GPyTorch as the kernel of a `Model`.

    kernel       any kernel of GPyTorch or BoTorch without a batch shape; copied as it is now, in double precision
    amplitude    what makes k(x,x) ≤ 1, such as the outputscale of a ScaleKernel; √amplitude belongs in norm_bound
    transform    T, an input transform of BoTorch or any function of (n, d) tensors; None for none

    Gradients in x are autograd's. A kernel of this kind is not stored with a policy: ms.load(path, kernel=…).
    """

    def __init__(self, kernel: Any, *, amplitude: float = 1.0, transform: Any = None) -> None:
        if not isinstance(kernel, theirs.Kernel):
            got = type(kernel).__name__
            raise InvalidInput(f"kernel must be a kernel of GPyTorch, such as MaternKernel(nu=2.5); got {got}")
        if kernel.batch_shape:
            raise InvalidInput(f"kernel must have no batch shape, got {tuple(kernel.batch_shape)}; hand in one of them")
        self.amplitude = number("amplitude", amplitude, above=0)
        callback("transform", transform)
        self._kernel = _frozen(kernel)
        self.stationary = _stationary(self._kernel)  # whether k(x, x) is known to be the same everywhere
        self._transform = _frozen(transform) if isinstance(transform, torch.nn.Module) else transform

    def __repr__(self) -> str:
        scaled = "" if self.amplitude == 1.0 else f", amplitude={self.amplitude:.4g}"
        return f"GPyTorchKernel({_name(self._kernel)}{scaled}{', transform' * (self._transform is not None)})"

    def __call__(self, X: Array, Z: Array, /) -> Array:
        if len(X) > len(Z):
            return self(Z, X).T
        out = np.empty((len(X), len(Z)))
        with _EVALUATING, torch.enable_grad():
            seen, others = self._seen(_tensor(X)), self._seen(_tensor(Z))
            for part in _parts(len(X), others.numel()):
                # GPyTorch expands squared distances around the mean of the first points, except where gradients are
                # wanted: one point at a time that is their difference, and exact
                x = seen[part].unsqueeze(-2).requires_grad_()
                values = to_dense(self._kernel(x, others.expand(len(x), *others.shape)))
                out[part] = values.detach().squeeze(-2).numpy()
        return out / self.amplitude

    def diag(self, X: Array, /) -> Array:
        with _EVALUATING, torch.no_grad():
            values = np.array(to_dense(self._kernel(self._seen(_tensor(X)), diag=True)).numpy()) / self.amplitude
        largest = float(values.max(initial=0.0))
        if largest > 1 + kernels.SLACK:
            raise InvalidInput(
                f"k(x,x) must be at most 1, and {shown(self)} has {largest:.6g} at x = {X[int(values.argmax())]}. Hand "
                f"in GPyTorchKernel(kernel, amplitude={largest * self.amplitude:.6g}) and multiply norm_bound by "
                f"{math.sqrt(largest):.4g}, since the norm of the same f grows by that; model_of does both for a model"
            )
        return values

    def with_gradient(self, X: Array, Z: Array) -> tuple[Array, Array]:
        """k(X, Z) and ∂k(x, z)/∂x, shapes (n, m) and (n, m, d)."""
        values, slopes = np.empty((len(X), len(Z))), np.zeros((len(X), len(Z), X.shape[1]))
        with _EVALUATING, torch.enable_grad():
            others = self._seen(_tensor(Z))
            for part in _parts(len(X), others.numel()):
                pairs = _tensor(X[part]).repeat_interleave(len(Z), dim=0).requires_grad_()  # one x for each z
                x = self._seen(pairs).unsqueeze(-2)
                z = others.repeat(len(pairs) // max(len(Z), 1), 1).unsqueeze(-2)
                found = to_dense(self._kernel(x, z))
                values[part] = found.detach().reshape(-1, len(Z)).numpy()
                if found.requires_grad:  # a kernel of choices has no slopes
                    (slope,) = torch.autograd.grad(found.sum(), pairs, allow_unused=True)
                    if slope is not None:
                        slopes[part] = slope.reshape(-1, len(Z), X.shape[1]).numpy()
        return values / self.amplitude, slopes / self.amplitude

    def _seen(self, X: Tensor) -> Tensor:
        """T(x)."""
        seen: Tensor = X if self._transform is None else self._transform(X)
        if seen.shape[:-1] != X.shape[:-1]:
            raise InvalidInput(f"transform must make one point of one, got {tuple(seen.shape)} of {tuple(X.shape)}")
        return seen


def _tensor(X: Array) -> Tensor:
    return torch.tensor(np.ascontiguousarray(X))  # a copy; torch has no negative strides


def _frozen(module: Any) -> Any:
    return copy.deepcopy(module).to("cpu", torch.float64).eval().requires_grad_(False)


def _parts(n: int, each: int) -> list[slice]:
    """Rows in parts, so that no part times `each` numbers is too large."""
    step = max(1, MOST_NUMBERS // max(each, 1))
    return [slice(start, start + step) for start in range(0, n, step)]


def _inside(kernel: Any) -> list[Any]:
    """The kernels that one is made of: of a sum, a product, or one that is scaled."""
    base = getattr(kernel, "base_kernel", None)
    return list(getattr(kernel, "kernels", None) or []) if base is None else [base]


def _name(kernel: Any) -> str:
    inside = ", ".join(map(_name, _inside(kernel)))
    return type(kernel).__name__ + (f"({inside})" if inside else "")


def _stationary(kernel: Any) -> bool:
    if type(kernel) in (theirs.ScaleKernel, theirs.AdditiveKernel, theirs.ProductKernel):
        return all(map(_stationary, _inside(kernel)))
    return type(kernel) in (theirs.RBFKernel, theirs.MaternKernel, theirs.RQKernel, theirs.PeriodicKernel)


def model_of(
    model: BotorchModel,
    norm_bound: float | None = None,
    *,
    noise: float | None = None,
    delta: float = 0.1,
    domain: Domain | None = None,
) -> Model:
    """A fitted SingleTaskGP as a `Model` with the same posterior, for policies of this library.

    The kernel is normalised to k(x,x) = 1 (at most 1 on the points that it was fitted to, where it is not stationary),
    the amplitude goes into `scale`, and regularization is the ratio of the variances of noise and outcome that the
    model has. norm_bound: B, in units of the outcome; None is the larger of `scale` and the norm of the fitted mean.
    noise: σ; None is the model's. domain: where the policy will play, for a Box and its grids, whose kernels see the
    unit cube, if the model was fitted in user units. As with `Model.from_data`, the data chose the model: it is marked
    `fitted`, and policies say that they guarantee nothing.
    """
    gp = _single_task(model)
    weights = _Weights(gp)
    offset, unit = float(weights.offset), float(weights.unit)
    least, most = float(weights.noise.min()), float(weights.noise.max())
    if most > least * (1 + 1e-6):
        raise InvalidInput(
            f"a Model has one noise for all results, got variances from {least:.4g} to {most:.4g}; average results of "
            "equal precision, or use EnlargedUpperConfidenceBound, which takes noise as it is"
        )
    if not isinstance(gp.mean_module, ConstantMean | ZeroMean):
        raise InvalidInput(f"a Model has a constant prior mean, got {type(gp.mean_module).__name__}; use ConstantMean")
    (inputs,) = gp.train_inputs
    with torch.no_grad():
        mean = gp.mean_module(inputs).detach().double()
        # in double precision, as the kernel below is
        amplitude = float(to_dense(_frozen(gp.covar_module)(inputs.to("cpu", torch.float64), diag=True)).max())
        rest = gp.train_targets.double() - mean
        norm = math.sqrt(max(0.0, float(rest @ weights.solve(rest) - weights.noise @ weights.solve(rest) ** 2)))
    scale = unit * math.sqrt(amplitude)
    return Model(
        GPyTorchKernel(gp.covar_module, amplitude=amplitude, transform=_encoding(gp, domain)),
        norm_bound=max(1.0, norm) * scale if norm_bound is None else norm_bound,
        noise=unit * math.sqrt(most) if noise is None else noise,
        regularization=most / amplitude,
        delta=delta,
        offset=offset + unit * float(mean[0]),
        scale=scale,
        fitted=True,
    )


def multiplier_of(
    model: BotorchModel, norm_bound: float, *, noise: float | None = None, delta: float = 0.1, width: Width = "mixture"
) -> float:
    """The multiplier of a named width ("mixture", "lemma1") for the results that a SingleTaskGP has.

    norm_bound: B, the norm of f − prior mean in the RKHS of the kernel with k(x,x) = 1, in units of the outcome; noise
    (σ, None for the model's), and delta as in `Model`. A guarantee needs them, and the kernel, to be known beforehand.
    """
    belief, weights = model_of(model, norm_bound, noise=noise, delta=delta), _Weights(_single_task(model))
    found = widths.multiplier(widths.check_width(width), belief, weights.log_det(), belief.delta)
    return found / belief.scale  # there a factor on σ where k(x,x) = 1, here on σ in units of the outcome


def _single_task(model: Any) -> Any:
    gp = _inner(model)
    if not isinstance(gp, SingleTaskGP) or gp.num_outputs != 1 or gp.batch_shape or is_ensemble(gp):
        raise InvalidInput(
            f"model must be a SingleTaskGP with one output and no batch shape, got {type(gp).__name__}; "
            "GPyTorchKernel takes the kernel of another, for a Model made by hand"
        )
    return gp


def _encoding(gp: Any, domain: Any) -> Any:
    """From points as a policy's kernel sees them to those that the model's kernel sees."""
    transform, box = getattr(gp, "input_transform", None), domain.box if hasattr(domain, "points") else domain
    if box is None:
        return transform
    instance("domain", box, Box, "fit the model to domain.encode(points), and leave domain out")
    units = Normalize(box.dimension, bounds=torch.tensor(np.array([box.low, box.high])), reverse=True)
    return units if transform is None else ChainedInputTransform(units=units, own=transform)
