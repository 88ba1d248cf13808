"""out[r] = silu(gate) * up of x[r], over rows grouped by expert, between the two grouped GEMMs of a mixture of experts.

Expert e has counts[e] rows from offsets[e] on. Every group begins at a multiple of 64, which kernels may rely on, and `rows`
is what an engine allocates: the worst case over all routings. The rows between the groups and behind the last one are padding:
nothing useful is in x there, and out stays as it is.
"""

import functools

import numpy as np

from tunesmith.dtype import dtype
from tunesmith.judge import judge
from tunesmith.task import Input, Output, Task, Workload, dynamic, note, static
from tunesmith.tolerance import Close, Judging
from tunesmith.values import Draw, Normal

PAD = 64


def routed(exponent):
    """Rows per expert by Zipf's law, 0 is even; they sum to the dim `tokens`."""

    def counts(draw: Draw):
        experts = draw.dims["E"]
        if draw.distribution == "zeros":
            return np.zeros(experts, np.int64)  # nothing routed here, as on an idle rank
        share = np.arange(1, experts + 1) ** -float(exponent)
        if draw.distribution == "extremes":  # everything to one expert
            share = np.eye(experts)[0]
        return draw.rng.multinomial(draw.dims["tokens"], draw.rng.permutation(share / share.sum()))

    return counts


def starts(draw: Draw):
    """The first row of each expert, and the end of the last."""
    padded = -(-np.asarray(draw["counts"], np.int64) // PAD) * PAD
    return np.concatenate([[0], np.cumsum(padded)])


def in_use(counts, offsets, rows):
    counts, offsets = np.asarray(counts, np.int64), np.asarray(offsets, np.int64)
    row = np.arange(rows)
    expert = np.searchsorted(offsets, row, side="right") - 1  # of experts that begin together, the one with rows
    inside = expert < len(counts)
    expert[~inside] = 0
    return inside & (row < offsets[expert] + counts[expert])


def activations(draw: Draw):
    """Numbers in the rows in use; large ones in the padding, so that using it shows."""
    x = Normal().draw(draw)
    x[~in_use(draw["counts"], draw["offsets"], len(x))] = 500.0
    return x


def close(judging: Judging):
    """`close`, with more room in f32: there the roundings of exp, quotient and product are not below that of the result."""
    some = judging.inputs["x"].reshape(-1)[:4096]
    of = next(t for t in map(dtype, ("bf16", "f16", "f32")) if np.array_equal(some.astype(t.numpy), some))
    return judge(Close(c=32) if of.name == "f32" else Close(), of, judging, raw=judging.got)


def case(name, tokens, exponent, **given):
    rows = -(-(tokens + min(given["E"], tokens) * (PAD - 1)) // PAD) * PAD
    return Workload(name, rows=rows, tokens=tokens, values={"counts": routed(exponent)}, **given)


qwen = {"E": 128, "d": 768, "io": "bf16", "on": "gpu"}  # Qwen3-30B-A3B, top-8
deepseek = {"E": 256, "d": 2048, "io": "bf16", "on": "gpu"}  # DeepSeek-V3, top-8
gpt_oss = {"E": 128, "d": 2880, "io": "bf16", "on": "gpu"}  # top-4
small = {"E": 16, "d": 768, "io": "f32", "on": "cpu"}

task = Task(
    "routed_activation",
    dims={"rows": dynamic, "tokens": note, "E": static, "d": static},
    types={"io": ["bf16", "f16", "f32"]},
    arguments=[
        Input("counts", "i32[E]", values=routed(0)),
        Input("offsets", "i32[E + 1]", values=starts),
        Input("x", "io[rows, 2*d]", values=activations, residency="warm"),
        Output("out", "io[rows, d]", partial=True, tolerance=close),
    ],
    workloads=[
        case("decode-16", 16 * 8, 1.0, **qwen),
        case("prefill-4096", 4096 * 8, 1.0, **qwen, weight=2),
        case("prefill-even", 2048 * 8, 0, **deepseek),
        case("prefill-gpt-oss", 4096 * 4, 0.8, **gpt_oss),
        case("cpu-skewed", 500, 1.0, **small),
        case("cpu-even", 2000, 0, **small),
    ],
    held_out=[
        case("one", 1, 0, **qwen),
        case("prime", 3001, 0.8, **gpt_oss),
        case("past-a-group", 64 * 128 + 1, 0, **qwen),
        case("cpu-one", 1, 0, **small),
        case("cpu-prime", 131, 0.8, **small),
        case("cpu-past-a-group", 65, 2.0, **small),
    ],
    bytes_moved="3*tokens*d*sizeof(io) + 4*(2*E + 1)",
    flops="6*tokens*d",
)


@task.reference
def routed_activation(counts, offsets, x):
    d = x.shape[1] // 2
    used = in_use(counts, offsets, len(x))
    out = np.ma.array(np.zeros((len(x), d)), mask=np.repeat(~used[:, None], d, axis=1))  # masked: stays as it is
    gate, up = x[used, :d], x[used, d:]
    with np.errstate(over="ignore"):  # exp of a large -gate: infinite, and the quotient 0
        out[used] = gate / (1 + np.exp(-gate)) * up
    return out


def _activate(counts, offsets, x, out):
    import torch

    row = torch.arange(x.shape[0], device=x.device, dtype=offsets.dtype)
    expert = torch.searchsorted(offsets, row, right=True) - 1
    inside = expert < counts.shape[0]
    expert = expert.clamp(max=counts.shape[0] - 1)
    used = inside & (row < offsets[expert] + counts[expert])
    gate, up = x.float().chunk(2, dim=1)  # the rounding of silu alone would cost half the tolerance
    return torch.where(used[:, None], (torch.nn.functional.silu(gate) * up).to(x.dtype), out)


@functools.cache
def _compiled():
    import torch

    return torch.compile(_activate, dynamic=False)


@task.baseline("torch-eager", arrays="torch")
def torch_eager(counts, offsets, x, out):
    out.copy_(_activate(counts, offsets, x, out))


@task.baseline("torch-compile", arrays="torch")
def torch_compile(counts, offsets, x, out):
    out.copy_(_compiled()(counts, offsets, x, out))
