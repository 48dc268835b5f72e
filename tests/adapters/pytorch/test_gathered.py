"""A gradient that the optimizer gets as backward gave it is read once; any change of it is seen."""

import pytest
import torch
from torch import nn

import msprobe
from msprobe.adapters.pytorch.gathered import LEAST_ELEMENTS

WIDE = 600
BACKWARD, UPDATE = "|backward|gradient|weight|0", "|update|gradient|weight|0"


@pytest.fixture
def update(tmp_path, read):
    """Records one step of a linear module, with something done to the gradient before the optimizer's step."""

    def run(change=lambda gradient: None, width=WIDE, passes=1, **options):
        torch.manual_seed(0)
        model, x = nn.Linear(width, width, bias=False), torch.randn(4, width)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with msprobe.record(model, tmp_path / "run", optimizer=optimizer, **{"what": "statistics", **options}) as probe:
            reads = _count_reads(probe)
            for _ in range(passes):
                model(x).square().sum().backward()
            gradient = model.weight.grad
            assert gradient is not None
            change(gradient)
            consumed = gradient.clone()
            optimizer.step()
        run = read(tmp_path / "run")
        norms = {name: run.at(name).values["norm"] for name in (BACKWARD, UPDATE)}
        assert norms[UPDATE] == pytest.approx(float(consumed.double().norm()), rel=1e-6)
        return norms, reads

    return run


def _count_reads(probe):
    reads, plain = [], probe.recorder._measure_plain

    def measure(tensor, what):
        reads.append(tensor.shape)
        return plain(tensor, what)

    probe.recorder._measure_plain = measure
    return reads


def test_an_unchanged_gradient_is_read_once(update):
    norms, reads = update(inputs=False, outputs=False, parameters=False)
    assert norms[BACKWARD] == norms[UPDATE]
    assert reads == [(WIDE, WIDE)]


CHANGES = {
    "operator": lambda g: g.mul_(0.5),
    "operator on data": lambda g: g.data.mul_(0.5),
    "another library": lambda g: g.numpy().__imul__(0.5),
    "clipping": lambda g: torch.nn.utils.clip_grad_norm_([_with_gradient(g)], 1.0),
    "other shape": lambda g: g.t_(),
}


def _with_gradient(gradient):
    parameter = nn.Parameter(torch.empty_like(gradient))
    parameter.grad = gradient
    return parameter


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_gradient_is_read_again(update, change):
    _, reads = update(change, inputs=False, outputs=False, parameters=False)
    assert len(reads) == 2


def test_a_sum_of_two_passes_is_read_again(update):
    norms, reads = update(passes=2, inputs=False, outputs=False, parameters=False)
    assert norms[UPDATE] == pytest.approx(2 * norms[BACKWARD])
    assert len(reads) == 3


def test_one_changed_element_of_a_small_gradient_is_seen(update):
    width = int(LEAST_ELEMENTS**0.5) - 1
    norms, _ = update(lambda g: g.data[7, 9].fill_(1e6), width=width)
    assert norms[UPDATE] > 1e6 > norms[BACKWARD]


def test_what_was_not_kept_in_backward_is_measured_in_the_update(update):
    _, reads = update(what="statistics,sketch,checksums", inputs=False, outputs=False, parameters=False)
    assert len(reads) == 1
