"""A recorded ViT says and learns what it does otherwise. Without a GPU nothing is recorded; all else is the same."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.train import replay_images
from heedful.train.replay_images import ImageReplay

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
BATCH = 5


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if request.param == "cpu":
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
        monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda module, *_, **__: module)
        monkeypatch.setattr(torch.random, "fork_rng", lambda *_: nullcontext())
        monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    return torch.device(request.param)


def model_on(device: torch.device, **settings: object) -> ViTClassifier:
    sizes = {"image_size": 6, "patch_size": 2, "channels": 1, "layers": 2, "dim": 64, "heads": 2, "ffn_dim": 53}
    model = ViTClassifier(ViTConfig(**{**sizes, **settings}), ("x", "y", "z"))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
    return model.to(device).train()


def pixels_on(device: torch.device, count: int = BATCH, seed: int = 0) -> Tensor:
    return torch.randn(count, 1, 6, 6, generator=torch.Generator().manual_seed(seed)).to(device)


VARIATIONS = {
    "as published": {},
    "stem": {"convolutional_stem": True},
    "shifted": {"shifted_patches": True, "pool": "mean"},
    "locality": {"locality": True},
}


@pytest.mark.parametrize("compiled", [False, True], ids=["as written", "compiled"])
@pytest.mark.parametrize("name", VARIATIONS)
def test_steps_are_those_of_the_model_itself(device: torch.device, name: str, compiled: bool):
    plain = model_on(device, **VARIATIONS[name])
    recorded = copy.deepcopy(plain)
    backend = "eager" if device.type == "cpu" else "inductor"
    replay = ImageReplay(recorded, BATCH, torch.float32, compiled=compiled, backend=backend)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (plain, recorded)]
    for seed in range(4):
        pixels = pixels_on(device, seed=seed)
        for score, optimizer in zip((plain, replay), optimizers, strict=True):
            score(pixels).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert replay.recorded is not None
    for expected, found in zip(plain.parameters(), recorded.parameters(), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_what_is_no_full_batch_or_a_large_one_is_not_recorded(device: torch.device, monkeypatch: pytest.MonkeyPatch):
    model = model_on(device)
    replay = ImageReplay(model, BATCH, torch.float32)
    few = pixels_on(device, 3)
    torch.testing.assert_close(replay(few), model(few))
    assert replay.recorded is None
    monkeypatch.setattr(replay_images, "MOST_TOKENS", BATCH * 10 - 1)  # nine patches and [CLS]
    replay(pixels_on(device))
    assert replay.recorded is None
    monkeypatch.setattr(replay_images, "MOST_TOKENS", BATCH * 10)
    replay(pixels_on(device))
    assert replay.recorded is not None


def test_layers_that_are_skipped_more_or_less_often_are_compiled_once():
    model = model_on(torch.device("cpu"), layers=4, stochastic_depth=0.4)
    torch.compiler.reset()
    counter = CompileCounter()
    run = torch.compile(replay_images._layer, fullgraph=True, dynamic=False, backend=counter)
    for layer in model.vit.layers:
        run(layer, torch.randn(3, 10, 64, requires_grad=True))
    assert counter.frame_count == 1


@needs_gpu
@pytest.mark.parametrize("name", VARIATIONS)
def test_half_precision_compiled_is_near_what_it_is_as_written(name: str):
    device = torch.device("cuda")
    model = model_on(device, **VARIATIONS[name])
    pixels, plain = pixels_on(device), copy.deepcopy(model)  # a graph of the same weights would spoil the recording
    expected = plain(pixels)
    expected.square().mean().backward()
    gradients = torch.cat([parameter.grad.flatten() for parameter in plain.parameters()])
    found = ImageReplay(model, BATCH, torch.bfloat16, compiled=True)(pixels)
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0.05)
    found.square().mean().backward()
    near = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert torch.nn.functional.cosine_similarity(near, gradients, 0) > 0.99
    assert 0.95 < near.norm() / gradients.norm() < 1.05


@needs_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_depth_and_dropout_follow_the_seed_whether_recorded_now_or_before(compiled: bool):
    model = model_on(torch.device("cuda"), dropout=0.2, stochastic_depth=0.4)
    pixels = pixels_on(torch.device("cuda"))

    def draw(replay: ImageReplay, seed: int) -> Tensor:
        torch.manual_seed(seed)
        return replay(pixels).detach().clone()

    fresh, used = (ImageReplay(model, BATCH, torch.bfloat16, compiled=compiled) for _ in range(2))
    other = draw(used, 1)
    assert torch.equal(draw(fresh, 7), draw(used, 7))
    assert not torch.equal(draw(used, 7), other)
