"""One query per sequence against its cached keys and values: out[b,h] = softmax(scale * q[b,h]·Kᵀ)·V, grouped heads.

The cache is paged: token t of sequence b is slot t % page of page page_table[b, t // page]. Lengths are ragged and may be 0
(padding of a captured batch: out is zero). Table entries behind the last page in use are stale, but name some page.
Bound by reading K and V once: 4*hk*d bytes per token in bf16.
"""

import numpy as np

from tunesmith.dtype import dtype
from tunesmith.judge import judge
from tunesmith.task import Input, Output, Scalar, Task, Workload, dynamic, free, note, static
from tunesmith.tolerance import L2, Close, Judging
from tunesmith.values import Draw, Normal


def ragged(weigh):
    """Lengths of 1 to page*W that sum to the dim `tokens`, roughly as `weigh(rng, B)` says."""

    def lengths(draw: Draw):
        (batch,), page = draw.shape, draw.dims["page"]
        cap, total = page * draw.dims["W"], draw.dims["tokens"]
        if not batch <= total <= batch * cap:
            raise ValueError(f"{batch} sequences of 1 to {cap} tokens cannot hold {total}")
        if draw.distribution == "zeros":
            return np.zeros(batch, np.int64)
        if draw.distribution == "extremes":  # around the borders of pages, as far as the pool holds them
            return np.minimum(draw.rng.choice([0, 1, page - 1, page, page + 1], batch), cap)
        weights, n = weigh(draw.rng, batch), np.ones(batch, np.int64)
        while (rest := total - int(n.sum())) > 0:
            room = weights * (n < cap)
            n = np.minimum(n + draw.rng.multinomial(rest, room / room.sum()), cap)
        return n

    return lengths


even = ragged(lambda rng, n: rng.uniform(0.7, 1.3, n))
mixed = ragged(lambda rng, n: rng.pareto(1.1, n) + 0.05)  # a few long ones among many short ones


def pages(draw: Draw):
    """Pages scattered over the pool, none in two sequences; stale entries behind them."""
    pool, need = draw.dims["P"], -(-np.asarray(draw["lengths"], np.int64) // draw.dims["page"])
    table = draw.rng.integers(0, pool, draw.shape)
    table[np.arange(draw.shape[1]) < need[:, None]] = draw.rng.permutation(pool)[: need.sum()]
    return table


def cache(draw: Draw):
    """Numbers in the slots in use; large ones elsewhere, so that reading too far shows."""
    x, page = Normal().draw(draw), draw.dims["page"]
    used = np.zeros(draw.shape[:2], bool)
    for table, n in zip(np.asarray(draw["page_table"]), np.asarray(draw["lengths"]), strict=True):
        count = -(-int(n) // page)
        used[table[:count].astype(np.int64)] = np.arange(count * page).reshape(-1, page) < n
    x[~used] = 300.0
    return x


def close(judging: Judging):
    """`close`; in f32, where sums that cancel and large scores cost more than the result's rounding, L2."""
    some = judging.inputs["q"]
    of = next(t for t in map(dtype, ("bf16", "f16", "f32")) if np.array_equal(some.astype(t.numpy), some))
    return judge(L2(1e-4) if of.name == "f32" else Close(), of, judging, raw=judging.got)


def case(name, lengths=even, **given):
    """A pool with a quarter more pages than the tokens can take."""
    worst = given["tokens"] // given["page"] + given["B"]
    return Workload(name, P=worst + worst // 4, values={"lengths": lengths, "scale": given["d"] ** -0.5}, **given)


llama8 = {"hq": 32, "hk": 8, "d": 128, "page": 16, "io": "bf16", "on": "gpu"}  # Llama-3-8B
llama70 = {"hq": 64, "hk": 8, "d": 128, "page": 16, "io": "bf16", "on": "gpu"}  # Llama-3-70B
small = {"hq": 8, "hk": 2, "d": 64, "page": 16, "io": "f32", "on": "cpu"}

task = Task(
    "decode_attention",
    dims={"B": dynamic, "W": free, "P": free, "tokens": note,
          "hq": static, "hk": static, "d": static, "page": static},
    types={"io": ["bf16", "f16", "f32"]},
    arguments=[
        Input("lengths", "i32[B]", values=even),
        Input("page_table", "i32[B, W]", values=pages),
        # a view of the fused q, k, v projection, which the kernel before has just written
        Input("q", "io[B, hq, d]", stride=("(hq + 2*hk)*d", "d", "1"), residency="warm"),
        Input("k_pool", "io[P, page, hk, d]", values=cache),
        Input("v_pool", "io[P, page, hk, d]", values=cache),
        Scalar("scale", "f32", values=128**-0.5),
        Output("out", "io[B, hq, d]", tolerance=close),
    ],
    workloads=[
        case("short-64", B=64, W=64, tokens=64 * 300, **llama8),
        case("mixed-32", mixed, B=32, W=512, tokens=32 * 1000, **llama8, weight=2),
        case("long-4", B=4, W=1024, tokens=4 * 8000, **llama8),
        case("mixed-70b-16", mixed, B=16, W=512, tokens=16 * 1500, **llama70),
        case("cpu-short-8", B=8, W=16, tokens=8 * 100, **small),
        case("cpu-mixed-16", mixed, B=16, W=64, tokens=16 * 200, **small),
    ],
    held_out=[
        case("one", B=1, W=1024, tokens=9001, **llama8),
        case("prime", mixed, B=23, W=300, tokens=23 * 777, **llama8),
        case("past-a-page", 17, B=9, W=64, tokens=9 * 17, **llama70),
        case("cpu-one", B=1, W=64, tokens=513, **small),
        case("cpu-prime", mixed, B=7, W=33, tokens=701, **small),
        case("cpu-past-a-page", 17, B=3, W=8, tokens=3 * 17, **small),
    ],
    bytes_moved="(2*tokens*hk*d + 2*B*hq*d)*sizeof(io) + 4*(B + ceil_div(tokens, page))",
    flops="4*tokens*hq*d",
    rows="B",
)  # fmt: skip


@task.reference
def decode_attention(lengths, page_table, q, k_pool, v_pool, scale):
    batch, heads, d = q.shape
    page, groups = k_pool.shape[1:3]
    out = np.zeros((batch, heads, d))
    for b, n in enumerate(np.asarray(lengths, np.int64)):
        if n == 0:
            continue
        table = np.asarray(page_table[b, : -(-n // page)], np.int64)
        k = k_pool[table].reshape(-1, groups, d)[:n].transpose(1, 2, 0)  # [hk, d, n]
        v = v_pool[table].reshape(-1, groups, d)[:n].transpose(1, 0, 2)
        scores = q[b].reshape(groups, -1, d) @ k * scale
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[b] = (p @ v / p.sum(axis=-1, keepdims=True)).reshape(heads, d)
    return out


@task.baseline("torch-eager", arrays="torch")
def torch_eager(lengths, page_table, q, k_pool, v_pool, scale, out):
    """Gather the pages, then one masked attention over the longest possible length."""
    import torch

    k = k_pool[page_table.long()].flatten(1, 2).transpose(1, 2)
    v = v_pool[page_table.long()].flatten(1, 2).transpose(1, 2)
    live = torch.arange(k.shape[2], device=q.device)[None, :] < lengths[:, None]
    found = torch.nn.functional.scaled_dot_product_attention(
        q[:, :, None], k, v, attn_mask=live[:, None, None], scale=float(scale), enable_gqa=True
    )
    out.copy_(torch.where((lengths > 0)[:, None, None], found[:, :, 0], 0))
