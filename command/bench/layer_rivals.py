"""The products of a prompt's layers with their norms, silu and residuals, for rivals.py layers: cuBLAS and what torch.compile
makes of the rest, and cuBLAS's products alone. Attention is left out: q stands for its result. Beside it stands the sum of
the products and norms that `rondo bench llama --prompt N --profile` shows."""
import torch
import torch.nn.functional as functional

import llama_rivals

TOKENS = [128, 512, 2048]


def alone(x, attended, layer, following, hidden):
    """The same products, without what stands between them."""
    functional.linear(attended, layer["output"])
    gate_up = functional.linear(x, layer["gate_up"])
    functional.linear(gate_up[:, :layer["down"].shape[1]], layer["down"])
    return x, functional.linear(x, following["qkv"])


def fused(x, attended, layer, following, hidden):
    """From the result of attention to q, k and v of the next layer."""
    x = x + functional.linear(attended, layer["output"])
    normed = functional.rms_norm(x, hidden, layer["feed_forward_norm"], llama_rivals.EPSILON)
    gate, up = functional.linear(normed, layer["gate_up"]).chunk(2, 1)
    x = x + functional.linear(functional.silu(gate) * up, layer["down"])
    return x, functional.linear(functional.rms_norm(x, hidden, following["attention_norm"], llama_rivals.EPSILON),
                                following["qkv"])


def all_layers(part, layers, tokens, hidden):
    """Calls the part for each layer. The last one's neighbour is the first."""
    first = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    qkv_of_first = functional.linear(first, layers[0]["qkv"])

    def call(_):
        x, qkv = first, qkv_of_first
        for layer, following in zip(layers, layers[1:] + layers[:1]):
            x, qkv = part(x, qkv[:, :hidden], layer, following, (hidden,))
    return call


def measure(samples, wanted, models, prompts, time_us):
    torch.set_grad_enabled(False)
    for name in models or llama_rivals.MODELS:
        for tokens in prompts or TOKENS:
            label = f"{name} bf16 layers prompt={tokens}"
            if not wanted(label):
                continue
            shape = llama_rivals.MODELS[name]
            layers = llama_rivals.Prompt(shape, tokens).layers
            moved = 2 * sum(layer[each].numel() for layer in layers for each in ("qkv", "output", "gate_up", "down"))
            torch.compiler.reset()
            for kernel, part in (("cuBLAS, products alone", alone),
                                 ("torch.compile", torch.compile(fused, fullgraph=True, dynamic=False))):
                us = time_us(all_layers(part, layers, tokens, shape.hidden), 1, moved, samples)
                print(f"{label:42} {us:8.2f} us  {kernel}", flush=True)
                yield dict(kind="layers", weights="bf16", model=name, prompt=tokens, us=round(us, 4), kernel=kernel)
            del layers
            torch.cuda.empty_cache()
