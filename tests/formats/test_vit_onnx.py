import dataclasses
import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import heedful
from heedful.errors import UserError
from heedful.formats import onnx as graphs
from heedful.formats.onnx import quantise, read_card
from heedful.formats.vit_onnx import ImageCard, export_vit, read_image_card
from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.nn.pixels import Pixels

CONFIG = ViTConfig(
    image_size=12,
    patch_size=4,
    channels=3,
    layers=2,
    dim=22,
    heads=2,
    ffn_dim=17,
    pixels=Pixels(mean=(0.1, 0.2, 0.3), std=(0.4,), edge=13),
)
LABELS = ("개미", "bee", "cat", "dog", "elk")
OPTIONS = {
    "plain": {},
    "shifted, local mean": {"pool": "mean", "shifted_patches": True, "locality": True, "stochastic_depth": 0.2},
    "stem": {"convolutional_stem": True},
}


def some(**options: object) -> ViTClassifier:
    """A model in which every parameter counts: biases are not zero, norms not one."""
    model = ViTClassifier(dataclasses.replace(CONFIG, **options), LABELS)
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if name.endswith(("norm.weight", "sharpness")):
                parameter.add_(1.0)
    return model.eval()


@pytest.fixture(scope="module", params=OPTIONS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ViTClassifier, Path]:
    model = some(**OPTIONS[request.param])
    path = tmp_path_factory.mktemp("vit") / "model.onnx"
    export_vit(model, path, "0123")
    return model, path


def run(path: Path, pixels: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"pixel_values": pixels})[0]


def test_scores_are_torchs(exported: tuple[ViTClassifier, Path]):
    model, path = exported
    for count in (1, 3, 7):
        pixels = torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(count))
        with torch.inference_mode():
            expected = model(pixels).numpy()
        found = run(path, pixels.numpy())
        np.testing.assert_allclose(found, expected, atol=1e-4)
        assert found.shape == (count, 5)
        assert np.abs(expected).max() > 0.5  # else zeros would do


def test_names_axes_and_operators_are_the_standards(exported: tuple[ViTClassifier, Path]):
    proto = onnx.load(exported[1])
    onnx.checker.check_model(proto)
    axes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*proto.graph.input, *proto.graph.output)
    }
    assert axes == {"pixel_values": ["batch", 3, 12, 12], "logits": ["batch", 5]}
    assert {node.domain for node in proto.graph.node} <= {"", "ai.onnx"}
    content = exported[1].read_bytes()
    assert str(Path(heedful.__file__).parent).encode() not in content
    assert b"site-packages" not in content


def test_the_card_travels_in_the_file(exported: tuple[ViTClassifier, Path], tmp_path: Path):
    model, path = exported
    card = ImageCard(labels=LABELS, image_size=12, channels=3, pixels=model.config.pixels, source="0123")
    assert read_image_card(path) == card
    assert read_card(path) is None  # which is for encoders of texts
    strange = onnx.load(path)
    for text in ('{"task": "classify"}', '{"task": "see"}', '{"task": "see", "pixels": 3, "labels": []}', "[", "[]"):
        del strange.metadata_props[:]
        entry = strange.metadata_props.add()
        entry.key, entry.value = "heedful", text
        onnx.save(strange, tmp_path / "strange.onnx")
        assert read_image_card(tmp_path / "strange.onnx") is None
    del strange.metadata_props[:]
    onnx.save(strange, tmp_path / "none.onnx")
    (tmp_path / "noise.onnx").write_bytes(b"\xff\x00 not a model" * 9)
    assert read_image_card(tmp_path / "none.onnx") is None
    assert read_image_card(tmp_path / "noise.onnx") is None


def test_eight_bits_are_near(exported: tuple[ViTClassifier, Path], tmp_path: Path):
    model, path = exported
    quantise(path, tmp_path / "small.onnx")
    pixels = torch.randn(13, 3, 12, 12, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        expected = model(pixels).numpy().ravel()
    found = run(tmp_path / "small.onnx", pixels.numpy()).ravel()
    assert found @ expected / np.linalg.norm(found) / np.linalg.norm(expected) > 0.98
    assert read_image_card(tmp_path / "small.onnx") == read_image_card(path)
    kinds = [one.data_type for one in onnx.load(tmp_path / "small.onnx").graph.initializer if len(one.dims) == 2]
    assert kinds.count(onnx.TensorProto.INT8) == 2 * 6 + 2  # the layers' matrices, the patches' and the head's


def test_export_is_quiet_and_leaves_the_model_as_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    model = ViTClassifier(dataclasses.replace(CONFIG, layers=1, stochastic_depth=0.5, dropout=0.5), LABELS).train()
    export_vit(model, tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    pixels = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        np.testing.assert_allclose(run(tmp_path / "model.onnx", pixels.numpy()), model.eval()(pixels), atol=1e-4)


def test_what_is_too_large_for_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graphs, "LARGEST", 4000)
    with pytest.raises(UserError, match="but an ONNX file holds less than 2 GB"):
        export_vit(some(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
