"""The scan of recordings of real models: sick ones are understood, healthy ones raise nothing."""

import pytest
import torch
from torch import nn

import msprobe
from msprobe.core.scan.scanning import scan
from tests.parallel.experts import MoE
from tests.parallel.launching import run_layout


class AdaptiveNorm(nn.LayerNorm):
    """A LayerNorm modulated by an embedding of the timestep."""

    def __init__(self, width):
        super().__init__(width, elementwise_affine=False)
        self.modulation = nn.Linear(width, 2 * width)

    def forward(self, x, time):  # type: ignore[override]
        scale, shift = self.modulation(nn.functional.silu(time))[:, None].chunk(2, -1)
        return super().forward(x) * (1 + scale) + shift


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = AdaptiveNorm(width), AdaptiveNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, time):
        y = self.norm1(x, time)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x, time))


class TextAndImage(nn.Module):
    """A denoiser of images beside text, told how noisy its input is."""

    def __init__(self, width=32):
        super().__init__()
        self.text, self.image = nn.Embedding(50, width), nn.Linear(12, width)
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.out = nn.Linear(width, 12)

    def forward(self, image, text, timestep):
        time = self.time(timestep[:, None] / 1000)
        x = torch.cat([self.text(text), self.image(image)], 1)
        for block in self.blocks:
            x = block(x, time)
        return self.out(x[:, text.shape[1] :])


def train(path, model, step_loss, *, steps, zero_grad=True, clip=None, **options):
    """Records a training; ``step_loss(step)`` gives the loss."""
    optimizer = options.pop("optimizer", None)
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 1e-3)
    with msprobe.record(model, path, optimizer=optimizer, **options):
        for step in range(steps):
            step_loss(step).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if zero_grad:
                optimizer.zero_grad()
    return scan(path)


def classify(model, *inputs):
    return nn.functional.cross_entropy(model(torch.randn(64, 8), *inputs), torch.randint(0, 4, (64,)))


@pytest.fixture(autouse=True, scope="module")
def _seeded():
    torch.manual_seed(0)


def test_a_starved_expert_with_a_mean_over_no_tokens(tmp_path):
    torch.manual_seed(0)
    model = MoE()
    found = train(tmp_path / "run", model, lambda step: classify(model, 2 if step == 3 else -1), steps=6)
    assert found.sentence.startswith(
        "At step 3, rank 0, the gradient of moe.experts.2.weight before reduction becomes NaN: expert 2 got no tokens"
    )
    assert [f.kind for f in found.findings] == ["non-finite"]


def test_a_starved_expert_of_a_data_parallel_training_is_found_on_its_rank(tmp_path):
    found = scan(run_layout("starved expert", tmp_path / "run"))
    assert found.sentence.startswith(
        "At step 3, rank 1, the gradient of moe.experts.2.weight before reduction becomes NaN: expert 2 got no tokens"
    )
    assert "the reduction took it to all 2 ranks" in found.sentence


def test_abnormal_timesteps_are_traced_to_the_norm_that_they_modulate(tmp_path):
    model = TextAndImage()

    def loss(step):
        image, timestep = torch.randn(8, 6, 12), torch.randint(0, 1000, (8,)).float() * (100 if step == 20 else 1)
        return (model(image, torch.randint(0, 50, (8, 5)), timestep) - image).square().mean()

    found = train(tmp_path / "run", model, loss, steps=24, clip=1.0, scalars=True)
    assert found.sentence.startswith("At step 20 the gradient norm rose to")
    assert "first (the model) forward input 2: its maximum is" in found.sentence
    assert "the forward was sick before the backward" in found.sentence
    norm = "the first normalisation out of its band is blocks.0.norm1 (AdaptiveNorm): the minimum is"
    assert norm in found.sentence
    assert [f.step for f in found.findings] == [20]


@pytest.mark.parametrize(
    "model", [MoE(averaged=False), nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4))]
)
def test_healthy_trainings_raise_nothing(tmp_path, model):
    found = train(tmp_path / "run", model, lambda step: classify(model), steps=30, scalars=True, clip=1.0)
    assert (found.findings, found.exit_code) == ((), 0)


def test_the_ratio_to_a_parameter_of_zeros_is_no_fault(tmp_path):
    last = nn.Linear(16, 4)
    nn.init.zeros_(last.weight)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), last)
    everything = dict.fromkeys(("updates", "optimizer_state", "updated_parameters", "scalars"), True)
    assert train(tmp_path / "run", model, lambda step: classify(model), steps=12, **everything).findings == ()


def test_an_optimizer_state_that_breaks_is_named(tmp_path):
    last = nn.Linear(16, 4)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), last)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def loss(step):
        if step == 3:
            optimizer.state[last.weight]["exp_avg_sq"][0, 0] = float("nan")
        return classify(model)

    kept = {"optimizer_state": True, "updated_parameters": True, "optimizer": optimizer}
    found = train(tmp_path / "run", model, loss, steps=6, **kept)
    assert found.sentence.startswith("At step 3, rank 0, the optimizer state 2.weight.exp_avg_sq becomes NaN while all")


class OwnCode(nn.Module):
    """Divides by a norm of zero when it is told to, between its modules."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x, *, zero):
        h = self.first(x)
        if zero:
            h = h * 0
            h = h / h.norm(dim=-1, keepdim=True)
        return self.last(h)


@pytest.mark.parametrize(
    ("level", "told"),
    [
        (
            "module",
            "the input of last (Linear) becomes NaN while what it was computed from is finite: in the own code of",
        ),
        ("mix", "the output of /aten.div.Tensor (aten.div.Tensor) becomes NaN: a division by"),
    ],
)
def test_a_division_in_own_code_is_placed_and_at_operator_level_named(tmp_path, level, told):
    model = OwnCode()

    def loss(step):
        return model(torch.randn(4, 8), zero=step == 2).square().mean()

    assert told in train(tmp_path / "run", model, loss, steps=4, level=level).sentence


def test_a_loss_that_makes_nan_of_finite_outputs_is_blamed(tmp_path):
    model = nn.Linear(8, 4)

    def loss(step):
        return (model(torch.randn(4, 8)).abs() * (step != 2)).log().mean()

    found = train(tmp_path / "run", model, loss, steps=4)
    assert "becomes NaN: it comes from the loss, while the outputs are finite" in found.sentence


class Masked(nn.Module):
    """Attention scores with a mask of -Inf, as a module of its own."""

    def __init__(self, whole_row=-1):
        super().__init__()
        self.mask, self.softmax, self.linear = nn.Identity(), nn.Softmax(-1), nn.Linear(8, 8)

    def forward(self, x, *, everything=False):
        masked = torch.ones(8, 8, dtype=torch.bool).triu(0 if everything else 1)
        weights = self.softmax(self.mask((x @ x.T).masked_fill(masked, float("-inf"))))
        return self.linear(weights @ x)


@pytest.mark.parametrize("trace", [True, False])
def test_a_mask_of_infinities_is_none_until_it_covers_a_row(tmp_path, trace):
    model = Masked()

    def loss(step, sick=-1):
        return model(torch.randn(8, 8), everything=step == sick).square().mean()

    assert train(tmp_path / "well", model, loss, steps=4, trace=trace).findings == ()
    found = train(tmp_path / "ill", model, lambda step: loss(step, 2), steps=4, trace=trace)
    assert found.sentence.startswith(
        "At step 2, rank 0, the output of softmax (Softmax) becomes NaN: softmax forward input 0 holds 36 inf"
    )


def test_an_overflow_is_named_where_it_arose(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8))

    def loss(step):
        return model(torch.randn(4, 8) * (1e38 if step == 2 else 1)).square().mean()

    found = train(tmp_path / "run", model, loss, steps=4)
    assert "the output of 2 (LayerNorm) becomes NaN: overflow: 2 forward input 0 reaches" in found.sentence
    assert found.findings[0].step == 2


def test_updates_that_a_gradient_scaler_skips_are_a_note(tmp_path):
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**124, growth_interval=10_000)
    with msprobe.record(model, tmp_path / "run", optimizer=optimizer) as probe:
        for _ in range(12):
            scaler.scale(100 * classify(model)).backward()
            skipped = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if scaler.get_scale() < skipped:
                probe.step()
    found = scan(tmp_path / "run")
    assert found.findings == ()
    assert "skipped the update: as it should" in " ".join(found.notes)


def test_parameters_that_the_optimizer_does_not_own_are_named(tmp_path):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model[2].parameters(), 1e-3)
    found = train(tmp_path / "run", model, lambda step: classify(model), steps=6, optimizer=optimizer)
    assert found.sentence == (
        "2 parameters were not moved by the optimizer although gradients arrive, while 2 others did: 0.weight, 0.bias."
    )


def test_a_learning_rate_of_zero_moves_nothing(tmp_path):
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    found = train(tmp_path / "run", model, lambda step: classify(model), steps=6, optimizer=optimizer)
    assert found.sentence.startswith("No parameter moved, although gradients arrive at all 2")


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_forgotten_zero_grad_is_seen_in_the_sums(tmp_path, clip):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    ill = train(tmp_path / "ill", model, lambda step: classify(model), steps=6, zero_grad=False, clip=clip)
    assert [f.kind for f in ill.findings] == ["zero_grad"]
    well = train(tmp_path / "well", model, lambda step: classify(model), steps=6, clip=clip)
    assert well.findings == ()


def test_an_expert_that_never_gets_a_token_is_dead(tmp_path):
    model = MoE(averaged=False)
    found = train(tmp_path / "run", model, lambda step: classify(model, 1), steps=10)
    dead = [f for f in found.findings if f.kind == "dead expert"]
    assert [f.sentence for f in dead] == ["Expert 1 of moe.experts got no token in 10 steps."]


def test_a_run_without_statistics_is_too_little(tmp_path):
    model = nn.Linear(8, 4)
    found = train(tmp_path / "run", model, lambda step: classify(model), steps=3, what={"checksums"})
    assert found.exit_code == 3
    assert found.sentence.startswith("Too little can be judged")
