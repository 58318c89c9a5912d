"""The explaining path gives what the fast path gives, and sites give what attention itself computes."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.explore.sites import DotProduct, Scored
from heedful.explore.texts import traced
from heedful.explore.tokens import encoder_tokens
from heedful.explore.trace import Trace, trace_encoder
from heedful.models.bert import Bert
from heedful.models.rnn import Rnn
from heedful.models.transformer import Transformer
from heedful.nn.layers import DecoderLayer
from heedful.nn.layout import Packed, Padded
from heedful.nn.scores import SCORES
from heedful.predict import Predictor
from heedful.predict.searching import TorchSearcher
from heedful.predict.translator import Translator

TEXT, PAIR = "the animal was tired.", "it sat by the river"
BERTS = ("published", "pre-norm", "rotary", "gated", "no biases", "modern")


def ids(tokens: tuple) -> Tensor:
    return torch.tensor([[one.id for one in tokens]])


def model_of(predictor: Predictor) -> Bert:
    assert predictor.words is not None
    return predictor.words.bert


def translating(translator: Translator) -> Transformer | Rnn:
    assert isinstance(translator.searcher, TorchSearcher)
    return translator.searcher.models[0]


def summed(site: DotProduct) -> np.ndarray:
    """What the looks of all heads come to, through the layer that joins them: (T, D)."""
    rows = [
        np.concatenate([site.look(head, row).mixed.output for head in range(site.heads)])
        for row in range(len(site.asking))
    ]
    with torch.no_grad():
        return site.attention.output(torch.from_numpy(np.stack(rows))).numpy()


@pytest.mark.parametrize("kind", BERTS)
@pytest.mark.parametrize("pair", [None, PAIR])
@torch.no_grad()
def test_an_encoder_is_the_same_on_both_paths(bert: Callable[[str], Predictor], kind: str, pair: str | None):
    predictor = bert(kind)
    trace = traced(predictor, TEXT, pair)
    tokens = ids(trace.tokens)[0]
    offsets = torch.tensor([0, len(tokens)], dtype=torch.int32)
    packed = Packed.from_offsets(offsets, len(tokens), len(tokens))
    segments = torch.tensor([one.segment for one in trace.tokens])
    assert predictor.words is not None
    hidden, _, _ = model_of(predictor)(tokens, segments, packed=packed)
    torch.testing.assert_close(trace.states, hidden, atol=1e-5, rtol=0)
    logits = predictor.words(tokens, segments, packed=packed).mlm_logits
    torch.testing.assert_close(predictor.words.words(trace.states), logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", BERTS)
@torch.no_grad()
def test_sites_of_an_encoder_are_its_attention(bert: Callable[[str], Predictor], kind: str):
    predictor = bert(kind)
    trace = traced(predictor, TEXT, PAIR)
    segments = torch.tensor([[one.segment for one in trace.tokens]])
    theirs = model_of(predictor)(ids(trace.tokens), segments, explain=True).weights
    assert theirs is not None
    for site, weights in zip(trace.parts["encoder"], theirs, strict=True):
        np.testing.assert_allclose(site.weights(), weights[0].numpy(), atol=1e-6)
    site = trace.parts["encoder"][1]
    assert isinstance(site, DotProduct)
    layout = Packed.from_offsets(torch.tensor([0, len(trace.tokens)], dtype=torch.int32), len(trace.tokens), 13)
    expected = site.attention(site.asking, layout, False, site.rotation)[0]
    np.testing.assert_allclose(summed(site), expected.numpy(), atol=1e-5)


def test_a_modern_folder_is_seen_like_the_model_it_was(modern_folder: Predictor, bert: Callable[[str], Predictor]):
    one, other = traced(modern_folder, TEXT), traced(bert("modern"), TEXT)
    torch.testing.assert_close(one.states, other.states, atol=1e-6, rtol=0)


@torch.no_grad()
def test_padding_is_not_looked_at_and_changes_nothing(bert: Callable[[str], Predictor]):
    plain, padded = (traced(bert("published"), TEXT, padding=count) for count in (0, 3))
    length = len(plain.tokens)
    torch.testing.assert_close(padded.states[:length], plain.states, atol=1e-5, rtol=0)
    look = padded.parts["encoder"][1].look(1, 2)
    assert look.mask.tolist() == [True] * length + [False] * 3
    assert look.mixed.weights[length:].tolist() == [0.0] * 3
    assert look.unmasked is not None
    assert (look.unmasked.weights[length:] > 0).all()
    assert plain.parts["encoder"][1].look(1, 2).unmasked is None


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("padding", [0, 2])
@torch.no_grad()
def test_a_transformer_is_the_same_on_both_paths(
    transformer: Callable[[bool], Translator], pre_norm: bool, padding: int
):
    translator = transformer(pre_norm)
    model = translating(translator)
    assert isinstance(model, Transformer)
    trace = traced(translator, "one three five", "하나 다섯 둘", padding=padding)
    source, target = ids(trace.tokens), ids(trace.target)
    mask = torch.tensor([[True] * (len(trace.tokens) - padding) + [False] * padding])
    torch.testing.assert_close(trace.states, model.states(source, mask, target)[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(model.output(trace.states), model(source, mask, target)[0], atol=1e-5, rtol=0)
    _, cross = model.decode(model.embed_target(target), model.encode(source, mask), explain=True)
    for site, weights in zip(trace.parts["cross"], cross, strict=True):
        np.testing.assert_allclose(site.weights(), weights[0].numpy(), atol=1e-6)
    states = model.embed_source(source)
    for layer, site in zip(model.encoder, trace.parts["encoder"], strict=True):
        states, weights = layer(states, Padded(mask), True)
        np.testing.assert_allclose(site.weights(), weights[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("pre_norm", [False, True])
@torch.no_grad()
def test_a_decoder_looks_back_alone_and_its_heads_sum_up(transformer: Callable[[bool], Translator], pre_norm: bool):
    translator = transformer(pre_norm)
    model = translating(translator)
    assert isinstance(model, Transformer)
    trace = traced(translator, "one three", "하나 다섯 둘")
    length = len(trace.target)
    y = model.embed_target(ids(trace.target))
    layer, site, cross = model.decoder[0], trace.parts["decoder"][0], trace.parts["cross"][0]
    assert isinstance(layer, DecoderLayer)
    assert isinstance(site, DotProduct)
    assert isinstance(cross, DotProduct)
    assert not np.triu(site.weights()[1], 1).any()
    np.testing.assert_allclose(site.weights().sum(-1), 1.0, atol=1e-5)
    read = layer.attention_norm(y) if pre_norm else y
    mixed = layer.attention.look_up(read, layer.attention.keys(read), causal=True)[0]
    np.testing.assert_allclose(summed(site), mixed[0].numpy(), atol=1e-5)
    between = y + mixed if pre_norm else layer.attention_norm(y + mixed)
    asking = layer.cross_attention_norm(between) if pre_norm else between
    memory = model.encode(ids(trace.tokens), torch.ones(1, len(trace.tokens), dtype=torch.bool))
    expected = layer.cross_attention.look_up(asking, layer.cross_attention.keys(memory.states))[0]
    np.testing.assert_allclose(summed(cross), expected[0].numpy(), atol=1e-5)
    look = site.look(0, 1)
    assert look.mask.tolist() == [True, True] + [False] * (length - 2)
    assert look.unmasked is not None
    assert site.look(0, length - 1).unmasked is None


def test_without_a_translation_the_models_own_is_looked_at(transformer: Callable[[bool], Translator]):
    translator = transformer(False)
    trace = traced(translator, "one three")
    best = translator.translate("one three")
    assert [one.text for one in trace.target[1:]] == best.pieces


@pytest.mark.parametrize("score", SCORES)
@torch.no_grad()
def test_a_recurrent_model_is_the_same_on_both_paths(rnn: Callable[[str], Translator], score: str):
    translator = rnn(score)
    model = translating(translator)
    trace = traced(translator, "one three five", "하나 다섯 둘", padding=2)
    source, target = ids(trace.tokens), ids(trace.target)
    mask = torch.tensor([[True] * (len(trace.tokens) - 2) + [False] * 2])
    torch.testing.assert_close(trace.states, model.states(source, mask, target)[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(model.output(trace.states), model(source, mask, target)[0], atol=1e-5, rtol=0)
    (site,) = trace.parts["cross"]
    assert isinstance(site, Scored)
    np.testing.assert_allclose(site.weights()[0], model.align(source, mask, target)[0].numpy(), atol=1e-6)
    look = site.look(0, 1)
    np.testing.assert_allclose(look.mixed.output, look.mixed.weights @ look.values, atol=1e-6)
    assert look.mixed.weights[-2:].tolist() == [0.0, 0.0]
    assert (look.unscaled is None) == (score != "scaled")
    if score == "scaled":
        np.testing.assert_allclose(look.scaled, look.products / np.sqrt(22), atol=1e-6)


@pytest.mark.parametrize("kind", BERTS)
@torch.no_grad()
def test_an_encoder_without_positions(bert: Callable[[str], Predictor], kind: str):
    """As if the table of positions were zero, or nothing were turned: then the order of words means nothing."""
    predictor = bert(kind)
    one = traced(predictor, "the animal was tired", placed=False)
    other = traced(predictor, "tired was animal the", placed=False)
    order = [0, 4, 3, 2, 1, 5]
    torch.testing.assert_close(one.states, other.states[order], atol=1e-5, rtol=0)
    placed = traced(predictor, "the animal was tired")
    assert not torch.allclose(one.states, placed.states, atol=1e-3)
    bert_model = model_of(predictor)
    if bert_model.embeddings.positions is not None:
        kept = bert_model.embeddings.positions.weight.clone()
        bert_model.embeddings.positions.weight.zero_()
        expected = bert_model(ids(one.tokens)).hidden[0]
        bert_model.embeddings.positions.weight.copy_(kept)
        torch.testing.assert_close(one.states, expected, atol=1e-5, rtol=0)
        assert bert_model.embeddings.positions is not None


@torch.no_grad()
def test_a_transformer_without_positions(transformer: Callable[[bool], Translator]):
    translator = transformer(False)
    model = translating(translator)
    assert isinstance(model, Transformer)
    trace = traced(translator, "one three", "둘 셋", placed=False)
    kept = model.positions.clone()
    model.positions.zero_()
    mask = torch.ones(1, len(trace.tokens), dtype=torch.bool)
    expected = model.states(ids(trace.tokens), mask, ids(trace.target))[0]
    model.positions.copy_(kept)
    torch.testing.assert_close(trace.states, expected, atol=1e-5, rtol=0)


def test_what_can_not_be_traced(bert: Callable[[str], Predictor], transformer: Callable[[bool], Translator]):
    with pytest.raises(UserError, match="the text is empty; write something in it"):
        traced(bert("published"), "  ")
    with pytest.raises(UserError, match="42 tokens, of which 41 can be looked at"):
        traced(bert("published"), "it " * 40)
    with pytest.raises(UserError, match="of which 30 can be looked at"):
        traced(transformer(False), "one " * 60)
    predictor = bert("published")
    config = model_of(predictor).config
    tokens = encoder_tokens(predictor.tokenizer, "it", "was")
    object.__setattr__(config, "segments", 1)
    with pytest.raises(UserError, match="one segment, so it can't read pairs"):
        trace_encoder(model_of(predictor), tokens, predictor.tokenizer.pad)
    object.__setattr__(config, "segments", 2)


def test_a_trace_says_what_it_takes_to_remember(bert: Callable[[str], Predictor]):
    trace = traced(bert("published"), TEXT)
    assert isinstance(trace, Trace)
    length = len(trace.tokens)
    assert trace.nbytes == 4 * length * 28 + 3 * (2 * 4 * length * 28 + length * length)
