"""Generates tokens with a small random-weight transformer, healthy or with one known fault.

    stallscope run sample_traces/scripts/decode.py --fault python

Faults:
    none      nothing wrong: the next step starts as soon as the last token is chosen
    python    20 ms of pure Python after each token (`postprocess`), as slow detokenisers and loggers do
    item      every logit that passes a filter is read back one by one with `.item()`
    threads   four times more compute threads than cores
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from tiny_llm import Cache, Config, TinyLLM

FAULTS = ("none", "python", "item", "threads")


def postprocess(tokens: list[int], budget_s: float) -> str:
    """Builds the text again from the first token on, character by character, until the budget is used."""
    text = ""
    end = time.perf_counter() + budget_s
    while time.perf_counter() < end:
        text = ""
        for token in tokens:
            for digit in str(token):
                text += chr(97 + int(digit))
    return text


def choose_token(logits: torch.Tensor) -> torch.Tensor:
    """Greedy choice, kept as a tensor: (batch, 1)."""
    return logits.argmax(dim=-1, keepdim=True)


def choose_token_one_by_one(logits: torch.Tensor) -> torch.Tensor:
    """Greedy choice over Python numbers: one `.item()` for each of the 64 best logits."""
    values, ids = logits.topk(64, dim=-1)
    best, chosen = float("-inf"), 0
    for i in range(values.shape[-1]):
        value = values[0, i].item()
        if value > best:
            best, chosen = value, int(ids[0, i].item())
    return torch.tensor([[chosen]])


def generate(model: TinyLLM, prompt: torch.Tensor, steps: int, fault: str, python_ms: float) -> list[int]:
    """Prefill the prompt, then decode `steps` tokens. Returns the tokens of the first sequence."""
    cache = Cache(model.config, prompt.shape[0])
    choose = choose_token_one_by_one if fault == "item" else choose_token
    chosen = choose(model(prompt, cache))
    tokens = [chosen]
    for _ in range(steps):
        chosen = choose(model(chosen, cache))
        tokens.append(chosen)
        if fault == "python":
            postprocess([1, 2, 3], python_ms / 1000)
    return [int(t) for t in torch.cat(tokens, dim=1)[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--steps", type=int, default=48, help="tokens to decode (default 48)")
    parser.add_argument("--prompt", type=int, default=32, help="tokens in the prompt (default 32)")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256, help="model width, a multiple of 8")
    parser.add_argument("--threads", type=int, default=1, help="compute threads (default 1)")
    parser.add_argument("--python-ms", type=float, default=20.0, help="Python work of the python fault")
    args = parser.parse_args()

    torch.set_num_threads(4 * (os.cpu_count() or 1) if args.fault == "threads" else args.threads)
    torch.manual_seed(0)
    model = TinyLLM(Config(layers=args.layers, width=args.width, hidden=args.width * 8 // 3)).eval()
    prompt = torch.arange(1, args.prompt + 1).reshape(1, -1)
    with torch.inference_mode():
        generate(model, prompt, 2, "none", 0.0)  # warm-up
        start = time.perf_counter()
        tokens = generate(model, prompt, args.steps, args.fault, args.python_ms)
    per_token = (time.perf_counter() - start) / args.steps
    print(f"{args.steps} tokens, {1000 * per_token:.1f} ms each: {tokens[:8]}...")


if __name__ == "__main__":
    main()
