"""Transformers' Trainer: a few steps with evaluation."""
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        tokens = torch.randint(3, 1000, (32,))
        return {"input_ids": tokens, "labels": tokens}


config = GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=1000, n_positions=64, bos_token_id=1, eos_token_id=2)
arguments = TrainingArguments(sys.argv[1], max_steps=4, per_device_train_batch_size=4, per_device_eval_batch_size=4,
                              eval_strategy="steps", eval_steps=2, logging_steps=1, report_to=[], save_strategy="no")
trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Data(), eval_dataset=Data())
trainer.train()
print("steps", trainer.state.global_step)
