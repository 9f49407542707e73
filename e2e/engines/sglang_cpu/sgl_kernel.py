"""Stands for SGLang's kernels, whose package on PyPI is for CUDA. SGLang imports it by name, and
has fallbacks in torch for nearly all that it would run on a CPU. The two kernels without one are
here; any other fails when it is called, not when it is imported.
"""

import sys
from types import ModuleType

import torch

__version__ = "0.4.10"  # of the API that SGLang 0.5.23 checks for
__path__ = []  # a package, so that its modules can be imported


def assign_req_to_token_pool_cpu(requests, table, starts, ends, slots, *_):
    """Writes the cache slots of a batch, which lie one after the other, into each request's row."""
    begin = 0
    for request, start, end in zip(requests.tolist(), starts.tolist(), ends.tolist()):
        count = end - start
        table[request, start:end] = slots[begin : begin + count].to(table.dtype)
        begin += count


def hash_positions(seed, positions, columns):
    """The random numbers of a request with a seed: one for each token of the vocabulary, by the
    seed, the position and the token alone. SGLang takes Murmur; any other mixing does as well.
    """
    state = (seed.to(torch.int64) * 0x9E3779B1 + positions.to(torch.int64) * 0x85EBCA77)[:, None] + columns.to(torch.int64) * 0xC2B2AE3D
    for factor in (0x7FEB352D, 0x46685257):
        state = (state & 0xFFFFFFFF) * factor
        state = state ^ (state >> 15)
    return (state & 0xFFFFFFFF).to(torch.uint32)


torch.library.define("sgl_kernel::murmur_hash32_cpu", "(Tensor seed, Tensor positions, Tensor columns) -> Tensor")
torch.library.impl("sgl_kernel::murmur_hash32_cpu", "cpu", hash_positions)


def absent(module, name):
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*_, **__):
        raise NotImplementedError(f"{module}.{name} needs a GPU")

    return kernel


def __getattr__(name):
    return absent(__name__, name)


for part in ("elementwise", "flash_attn", "kvcacheio", "mamba", "quantization", "sampling", "speculative"):
    module = sys.modules[f"{__name__}.{part}"] = ModuleType(f"{__name__}.{part}")
    module.__getattr__ = lambda name, module=module.__name__: absent(module, name)
