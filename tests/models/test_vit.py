import copy
import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.models.vit import (
    SIZES,
    ViT,
    ViTClassifier,
    ViTConfig,
    at_size,
    default_patch,
    divisors,
    initialise,
)
from heedful.nn.locality import LocalityAttention
from heedful.nn.patches import PatchEmbedding
from heedful.nn.pixels import Pixels
from heedful.nn.shifted_patches import ShiftedPatchEmbedding
from heedful.nn.stem import ConvolutionalStem

CONFIG = ViTConfig(image_size=12, patch_size=4, channels=3, layers=2, dim=22, heads=2, ffn_dim=17)
LABELS = ("ant", "bee", "cat", "dog", "elk")
OPTIONS = {
    "plain": {},
    "mean": {"pool": "mean"},
    "shifted": {"shifted_patches": True},
    "stem": {"convolutional_stem": True},
    "local": {"locality": True},
    "all": {"pool": "mean", "shifted_patches": True, "locality": True, "stochastic_depth": 0.5, "dropout": 0.1},
}


def fill_at_random(model: nn.Module) -> None:
    """Every parameter counts: biases are not zero, norms not one."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if name.endswith(("norm.weight", "sharpness")):
                parameter.add_(1.0)


def classifier(**changes: object) -> ViTClassifier:
    model = ViTClassifier(dataclasses.replace(CONFIG, **changes), LABELS).eval()
    fill_at_random(model)
    return model


def images(count: int = 3, height: int = 12, width: int = 12, channels: int = 3) -> Tensor:
    return torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(height * width))


def test_patches_suit_the_image():
    expected = {
        1: 1,
        3: 1,
        8: 2,
        12: 3,
        16: 2,
        28: 4,
        32: 4,
        48: 6,
        64: 8,
        96: 12,
        128: 16,
        224: 16,
        384: 16,
        512: 16,
    }
    assert {size: default_patch(size) for size in expected} == expected


def answer(size: int) -> int | str:
    try:
        return default_patch(size)
    except UserError as error:
        return str(error)


def test_a_default_patch_divides_or_there_is_a_way_out():
    answers = {size: answer(size) for size in range(1, 401)}
    refused = {size: said for size, said in answers.items() if isinstance(said, str)}
    assert {29, 31, 37, 62, 289} <= refused.keys()
    assert {23, 25, 92, 100, 400} <= answers.keys() - refused.keys()
    for size, patch in answers.items():
        if isinstance(patch, int):
            assert size % patch == 0
            assert patch <= 16
            assert size // patch >= min(size, 4)
    for size, said in refused.items():
        assert said.startswith(f"image_size {size} divides by 1, ")
        near = [int(word) for word in said.partition("try image_size ")[2].split(",")[0].split(" or ")]
        assert near == sorted(near)
        assert all(abs(other - size) <= 9 and isinstance(answer(other), int) for other in near)


def test_what_divides():
    assert divisors(28) == [1, 2, 4, 7, 14, 28]
    with pytest.raises(UserError, match="image_size 0 must be at least 1"):
        default_patch(0)


@pytest.mark.parametrize(("size", "published"), [("tiny", 5_717_416), ("small", 22_050_664), ("base", 86_567_656)])
def test_published_sizes_have_the_published_number_of_parameters(size: str, published: int):
    with torch.device("meta"):
        model = ViTClassifier(ViTConfig.of_size(size), tuple(map(str, range(1000))))
    assert sum(parameter.numel() for parameter in model.parameters()) == published
    assert (model.config.patch_size, model.config.image_size, model.config.tokens) == (16, 224, 197)
    assert model.config.published


def test_sizes_for_small_images_are_smaller():
    for size, (layers, dim, heads) in list(SIZES.items())[:3]:
        config = ViTConfig.of_size(size, image_size=28, channels=1, pool="mean", locality=True, stochastic_depth=0.1)
        assert (config.layers, config.dim, config.heads, config.ffn_dim) == (layers, dim, heads, 4 * dim)
        assert 4 <= layers <= 9
        assert 64 <= dim <= 256
        assert (config.patch_size, config.side, config.tokens) == (4, 7, 49)
        assert config.variations == ("mean of the patches", "locality")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"patch_size": 5, "image_size": 28},
            "patch_size 5 does not divide image_size 28; choose from 1, 2, 4, 7, 14",
        ),
        ({"layers": 0}, "layers 0 must be at least 1"),
        ({"pool": "max"}, "pool 'max' is not known; choose from cls, mean"),
        ({"activation": "tanh"}, "activation 'tanh' is not known; choose from gelu"),
        ({"dropout": 1.0}, "dropout 1.0 must be at least 0 and below 1"),
        ({"attention_dropout": -0.1}, "attention_dropout -0.1 must be at least 0 and below 1"),
        ({"stochastic_depth": 1.0}, "stochastic_depth 1.0 must be at least 0 and below 1"),
        ({"shifted_patches": True, "convolutional_stem": True}, "both make the tokens; choose one of them"),
        ({"convolutional_stem": True, "patch_size": 6}, "patch_size 6 must be one of 2, 4, 8, 16"),
        ({"locality": True, "patch_size": 12, "pool": "mean"}, "there is one alone; choose a smaller patch_size"),
        ({"pixels": Pixels(mean=(0.1, 0.2))}, "mean has 2 numbers, but images have channels 3"),
    ],
)
def test_a_config_checks_itself(changes: dict, said: str):
    with pytest.raises(UserError, match=said):
        dataclasses.replace(CONFIG, **changes)


def test_unknown_names_and_labels_are_refused():
    with pytest.raises(UserError, match="size 'huge' is not known; choose from micro, mini, compact, tiny"):
        ViTConfig.of_size("huge")
    with pytest.raises(UserError, match="dim 22 is not divisible by heads 3; try dim 21 or 24"):
        ViT(dataclasses.replace(CONFIG, heads=3))
    for labels, said in (((), "got none"), (("ant", "bee", "ant"), "got ant, bee, ant")):
        with pytest.raises(UserError, match=said):
            ViTClassifier(CONFIG, labels)


@pytest.mark.parametrize(
    ("pixels", "said"),
    [
        (torch.zeros(3, 12, 12), r"pixels must be \(images, 3, height, width\); got \(3, 12, 12\)"),
        (torch.zeros(2, 1, 12, 12), r"pixels must be \(images, 3, height, width\); got \(2, 1, 12, 12\)"),
        (torch.zeros(2, 3, 12, 12, dtype=torch.uint8), "pixels of type torch.uint8 are not normalised"),
        (torch.zeros(2, 3, 12, 14), "an image of 12 x 14 pixels is not made of patches of 4 x 4"),
        (torch.zeros(2, 3, 0, 12), "an image of 0 x 12 pixels"),
    ],
)
def test_what_is_no_batch_of_images_is_refused(pixels: Tensor, said: str):
    with pytest.raises(UserError, match=said):
        classifier()(pixels)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("size", [(12, 12), (8, 20)])
@torch.no_grad()
def test_the_fast_and_the_explaining_path_agree(options: dict, size: tuple[int, int]):
    model = classifier(**options)
    pixels = images(3, *size)
    fast, explained = model.vit(pixels), model.vit(pixels, explain=True)
    count = size[0] * size[1] // 16 + (model.config.pool == "cls")
    assert fast.weights is None
    assert explained.weights is not None
    assert len(explained.weights) == CONFIG.layers
    for weights in explained.weights:
        assert weights.shape == (3, CONFIG.heads, count, count)
        assert_close(weights.sum(-1), torch.ones(3, CONFIG.heads, count))
    assert fast.hidden.shape == (3, count, CONFIG.dim)
    assert_close(fast.hidden, explained.hidden, atol=1e-5, rtol=1e-5)
    assert_close(fast.pooled, explained.pooled, atol=1e-5, rtol=1e-5)
    scores = model(pixels)
    assert scores.shape == (3, len(LABELS))
    assert_close(scores, model.output(fast.pooled))
    assert_close(scores[1:2], model(pixels[1:2]), atol=1e-5, rtol=1e-5)


def test_each_option_puts_its_own_part_in():
    parts = {name: ViT(dataclasses.replace(CONFIG, **options)) for name, options in OPTIONS.items()}
    kinds = {"shifted": ShiftedPatchEmbedding, "all": ShiftedPatchEmbedding, "stem": ConvolutionalStem}
    for name, vit in parts.items():
        assert type(vit.patches) is kinds.get(name, PatchEmbedding)
        local = [isinstance(module, LocalityAttention) for module in vit.modules()]
        assert any(local) == (name in ("local", "all"))
        assert (vit.cls is None) == (name in ("mean", "all"))


def test_what_matters_in_training_alone_changes_no_answer():
    plain, deep = classifier(), classifier(stochastic_depth=0.5, dropout=0.2, attention_dropout=0.2)
    pixels = images()
    with torch.no_grad():
        assert torch.equal(plain(pixels), deep(pixels))
        deep.train()
        torch.manual_seed(1)
        assert not torch.equal(plain(pixels), deep(pixels))
    assert deep.config.published
    rates = [layer.dropout[1].rate for layer in deep.vit.layers]  # pyrefly: ignore
    assert rates == [0.25, 0.5]


@torch.no_grad()
def test_the_mean_of_patches_knows_their_order_by_positions_alone():
    model = classifier(pool="mean")
    pixels = images()
    turned = torch.cat([pixels[..., 4:], pixels[..., :4]], -1)  # columns of patches change places
    assert not torch.allclose(model(pixels), model(turned), atol=1e-3)
    model.vit.positions.zero_()
    assert_close(model(pixels), model(turned), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_pooler_reads_the_first_state():
    vit = ViT(CONFIG, pooler=True).eval()
    fill_at_random(vit)
    found = vit(images())
    assert vit.pooler is not None
    assert_close(found.pooled, torch.tanh(vit.pooler(found.hidden[:, 0])))


@pytest.mark.parametrize("pool", ["cls", "mean"])
@torch.no_grad()
def test_a_copy_for_another_size_answers_as_the_model_does(pool: str):
    model = classifier(pool=pool)
    larger = at_size(model, 20)
    assert (larger.config.image_size, larger.config.side) == (20, 5)
    assert larger.vit.positions.shape == (25 + (pool == "cls"), CONFIG.dim)
    assert larger.vit.positions.requires_grad
    pixels = images(2, 20, 20)
    assert_close(larger(pixels), model(pixels))
    assert model.config == dataclasses.replace(CONFIG, pool=pool)
    assert model.vit.positions.shape == (9 + (pool == "cls"), CONFIG.dim)
    same = at_size(model.vit, 12)
    assert torch.equal(same.positions, model.vit.positions)
    assert same.positions is not model.vit.positions
    with pytest.raises(UserError, match="patch_size 4 does not divide image_size 13"):
        at_size(model, 13)
    cropped = ViT(dataclasses.replace(CONFIG, pixels=Pixels(edge=15)))
    assert at_size(cropped, 16).config.pixels.edge == 20


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_parameter_learns(options: dict):
    torch.manual_seed(0)
    model = ViTClassifier(dataclasses.replace(CONFIG, **options), LABELS).train()
    initialise(model, torch.Generator().manual_seed(1))
    model(images(31)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("key.bias"):  # the same for all keys, so the softmax does not see it
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_start_is_drawn_from_its_generator(options: dict):
    config = dataclasses.replace(CONFIG, dim=110, image_size=32, init_std=0.03, **options)
    one, other, third = (ViTClassifier(config, LABELS) for _ in range(3))
    before = torch.get_rng_state()
    initialise(one, torch.Generator().manual_seed(3))
    initialise(other, torch.Generator().manual_seed(3))
    initialise(third, torch.Generator().manual_seed(4))
    assert torch.equal(torch.get_rng_state(), before)
    for (name, parameter), same, different in zip(
        one.named_parameters(), other.parameters(), third.parameters(), strict=True
    ):
        assert torch.equal(parameter, same), name
        if parameter.dim() > 1 or name == "vit.cls":
            assert not torch.equal(parameter, different), name
            assert 0.7 * 0.03 < parameter.std() < 1.3 * 0.03, name
            assert parameter.mean().abs() < 0.01, name
        else:
            ones = name.endswith(("norm.weight", "sharpness")) or ("stages" in name and name.endswith("weight"))
            assert torch.equal(parameter, torch.full_like(parameter, float(ones))), name


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@torch.no_grad()
def test_half_precision_is_near(options: dict):
    """As a whole, or where a product is computed; images of another size too."""
    model, pixels = classifier(**options), images(5, 8, 20)
    expected = model(pixels)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.vit(pixels).hidden.dtype is torch.float32  # what layers add to stays exact
        mixed = model(pixels)
    low = copy.deepcopy(model).bfloat16()(pixels.bfloat16())
    for found in (mixed, low):
        assert found.dtype is torch.bfloat16
        assert nn.functional.cosine_similarity(found.float(), expected).min() > 0.99


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_gpu_answers_the_same_and_learns(options: dict):
    config = ViTConfig.of_size("mini", image_size=28, channels=1, **options)
    model = ViTClassifier(config, LABELS).eval()
    initialise(model, torch.Generator().manual_seed(1))
    pixels = images(7, 28, 28, 1)
    with torch.no_grad():
        expected = model(pixels)
        there = copy.deepcopy(model).cuda()
        assert_close(there(pixels.cuda()).cpu(), expected, atol=1e-3, rtol=1e-3)
        half = copy.deepcopy(model).cuda().half()(pixels.cuda().half()).float().cpu()
        assert nn.functional.cosine_similarity(half, expected).min() > 0.99
    there.train()
    with torch.autocast("cuda", torch.bfloat16):
        there(pixels.cuda()).float().square().sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in there.parameters())


@pytest.mark.parametrize("options", [OPTIONS["plain"], OPTIONS["all"], OPTIONS["stem"]], ids=["plain", "all", "stem"])
def test_it_learns_where_a_spot_is(options: dict):
    """Four quarters of an image with noise, one brighter: a second of training tells them apart."""
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=8, patch_size=2, channels=1, layers=2, dim=24, heads=2, ffn_dim=48, **{**options, "dropout": 0.0}
    )
    model = ViTClassifier(config, ("a", "b", "c", "d"))
    generator = torch.Generator().manual_seed(1)
    initialise(model, generator)
    model.train()

    def some(count: int) -> tuple[Tensor, Tensor]:
        quarters = torch.randint(4, (count,), generator=generator)
        pixels = torch.randn(count, 1, 2, 4, 2, 4, generator=generator) * 0.5
        pixels[torch.arange(count), 0, quarters // 2, :, quarters % 2] += 1.0
        return pixels.reshape(count, 1, 8, 8), quarters

    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(80):
        pixels, quarters = some(47)
        loss = nn.functional.cross_entropy(model(pixels), quarters)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pixels, quarters = some(199)
    with torch.no_grad():
        assert (model.eval()(pixels).argmax(1) == quarters).float().mean() > 0.95
