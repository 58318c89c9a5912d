"""The sums by hand, for classes and for shares of them, and a batch on its way to them."""

import itertools
import math

import numpy as np
import pytest
import torch

from heedful.data.augmentation import STRONG, Augmentation
from heedful.data.batch import ImageBatch
from heedful.data.image_sampler import ImageSampler
from heedful.data.images import Images
from heedful.data.sampler import START
from heedful.nn.pixels import Pixels
from heedful.tasks.vision import image_term, seen, vision_counts, vision_terms

THREE = math.log(3)
SCORES = torch.tensor([[THREE, 0.0, 0.0], [0.0, THREE, 0.0], [THREE, 0.0, 0.0]])
"""Shares of 3/5 for one class and of 1/5 for the other two."""
CPU = torch.device("cpu")
PLAIN = Pixels(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def batch(count: int = 13, first: int = 0) -> ImageBatch:
    rng = np.random.default_rng(first)
    pixels = rng.integers(0, 256, (count, 8, 5, 3)).astype(np.uint8)
    return ImageBatch(pixels, np.arange(count) % 3, np.arange(first, first + count))


def test_classes_by_hand():
    term = image_term(SCORES, torch.tensor([0, 1, 2]))
    assert term.loss.item() == pytest.approx(2 * math.log(5 / 3) + math.log(5))
    assert (term.correct.item(), term.count) == (2, 3)


def test_smoothed_classes_by_hand():
    """A tenth of 0.3 goes to each class."""
    term = image_term(SCORES, torch.tensor([0, 1, 2]), 0.3)
    right, wrong = math.log(5 / 3), math.log(5)
    assert term.loss.item() == pytest.approx(2 * (0.8 * right + 0.2 * wrong) + (0.1 * right + 0.9 * wrong))
    assert (term.correct.item(), term.count) == (2, 3)


def test_shares_by_hand():
    shares = torch.tensor([[0.75, 0.25, 0.0], [0.6, 0.4, 0.0], [1.0, 0.0, 0.0]])
    term = image_term(SCORES, shares)
    right, wrong = math.log(5 / 3), math.log(5)
    assert term.loss.item() == pytest.approx(1.75 * right + 0.25 * wrong + 0.4 * right + 0.6 * wrong)
    assert (term.correct.item(), term.count) == (2, 3)  # of the second, most is of another class


def test_shares_of_one_class_are_that_class():
    labels = torch.tensor([2, 1, 0])
    one, other = image_term(SCORES, labels, 0.1), image_term(SCORES, torch.eye(3)[labels], 0.1)
    assert one.loss.item() == pytest.approx(other.loss.item())
    assert one.correct.item() == other.correct.item()


def test_half_precision_is_summed_in_single():
    scores = SCORES.bfloat16().repeat(1000, 1)
    assert image_term(scores, torch.zeros(3000, dtype=torch.long)).loss.dtype is torch.float32


def test_pixels_on_their_way_to_the_model():
    pixels, labels, mixture = seen(batch(), CPU, Pixels(mean=(0.5, 0.0, 0.0), std=(0.5, 1.0, 1.0)))
    assert mixture is None
    assert labels.tolist() == batch().labels.tolist()
    assert pixels.shape == (13, 3, 8, 5)
    assert pixels.is_contiguous()
    expected = batch().pixels.transpose(0, 3, 1, 2) / 255.0
    expected[:, 0] = expected[:, 0] * 2 - 1
    np.testing.assert_allclose(pixels.numpy(), expected, atol=1e-6)


def test_terms_of_a_model():
    weight = torch.randn(3 * 8 * 5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    found = vision_terms(lambda pixels: pixels.flatten(1) @ weight, batch(), CPU, PLAIN, smoothing=0.1)
    expected = image_term(seen(batch(), CPU, PLAIN)[0].flatten(1) @ weight, torch.arange(13) % 3, 0.1)
    assert list(found) == list(vision_counts(batch())) == ["image"]
    assert found["image"].loss.item() == pytest.approx(expected.loss.item())
    assert found["image"].count == vision_counts(batch())["image"] == 13
    found["image"].loss.backward()
    assert weight.grad is not None
    assert not found["image"].correct.requires_grad


def test_terms_of_mixed_images_are_against_mixed_labels():
    pixels, _, mixture = seen(batch(), CPU, PLAIN, STRONG, seed=7)
    assert mixture is not None
    scores = pixels.flatten(1)[:, :3]
    found = vision_terms(lambda given: given.flatten(1)[:, :3], batch(), CPU, PLAIN, STRONG, seed=7)["image"]
    expected = image_term(scores, mixture.targets(torch.arange(13) % 3, 3))
    assert found.loss.item() == expected.loss.item()
    other = vision_terms(lambda given: given.flatten(1)[:, :3], batch(), CPU, PLAIN, STRONG, seed=8)["image"]
    assert found.loss.item() != other.loss.item()


def test_the_same_images_look_different_later_in_the_run():
    later = batch()._replace(numbers=batch().numbers + 13)
    first, second = (seen(one, CPU, PLAIN, Augmentation(crop=0.25), seed=1)[0] for one in (batch(), later))
    assert not first.equal(second)


def test_a_resumed_run_sees_what_an_uninterrupted_one_does():
    """Also on other ranks: the draws belong to the batch."""
    rng = np.random.default_rng(0)
    images = Images.of(rng.integers(0, 256, (23, 8, 8, 3)).astype(np.uint8), np.arange(23) % 3, ("a", "b", "c"))
    sampler = ImageSampler(images=images, batch=5, seed=3)
    whole = list(itertools.islice(sampler.stream(), 12))
    views = [seen(one, CPU, PLAIN, STRONG, seed=3)[0] for _, one in whole]
    assert len({float(view.sum()) for view in views}) == 12
    rest = itertools.islice(sampler.stream(whole[6][0]), 5)
    for expected, (_, one) in zip(views[7:], rest, strict=True):
        assert seen(one, CPU, PLAIN, STRONG, seed=3)[0].equal(expected)
    second = itertools.islice(sampler.stream(START, 1, 2), 6)
    for expected, (_, one) in zip(views[1::2], second, strict=True):
        assert seen(one, CPU, PLAIN, STRONG, seed=3)[0].equal(expected)


@needs_gpu
def test_a_gpu_draws_the_same():
    """All but the noise of random erasing, and that in the same places."""
    how = Augmentation(crop=0.25, zoom=0.5, flip=True, rand_augment=2, mixup=0.8, cutmix=1.0)
    here, _, mine = seen(batch(), CPU, PLAIN, how, seed=1)
    there, _, theirs = seen(batch(), torch.device("cuda"), PLAIN, how, seed=1)
    assert mine is not None
    assert theirs is not None
    assert theirs.partners.cpu().equal(mine.partners)
    torch.testing.assert_close(theirs.share.cpu(), mine.share)
    assert ((there.cpu() - here).abs() > 2.5 / 255).float().mean() < 0.01  # a value at a threshold may fall otherwise
