"""What transformers needs to open a BERT that classifies by the mean of its states; copied into such folders.

    AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)

heedful itself never imports this file.
"""

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification
from transformers.modeling_outputs import SequenceClassifierOutput


class HeedfulBertConfig(BertConfig):
    """BERT's, under another name: the weights are the same, what the pooler reads is not."""

    model_type = "heedful_bert"


class HeedfulBertForSequenceClassification(BertForSequenceClassification):
    """The pooler reads the mean of all states in place of the state of `[CLS]`."""

    config_class = HeedfulBertConfig

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **_: object,
    ) -> SequenceClassifierOutput:
        """Scores (B, C)."""
        hidden = self.bert(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state
        real = torch.ones_like(hidden[..., :1]) if attention_mask is None else attention_mask[..., None].to(hidden)
        mean = (hidden * real).sum(1) / real.sum(1)
        pooled = torch.tanh(self.bert.pooler.dense(mean))  # pyrefly: ignore
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(pooled)))
