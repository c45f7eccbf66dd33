# SPDX-License-Identifier: Apache-2.0
# PyTorch's scaled_dot_product_attention as a process that answers bench/attention: one line in (threads d t
# heads causal backward seconds), the best time of one call out. Inputs of a shape are made once, so both
# sides are warm.
import sys
import time

import torch
import torch.nn.functional as F


def main():
    print("PyTorch", torch.__version__, flush=True)
    made = {}
    for line in sys.stdin:
        threads, d, t, heads, causal, backward = (int(x) for x in line.split()[:6])
        seconds = float(line.split()[6])
        torch.set_num_threads(threads)
        if (d, t, heads) not in made:
            made = {(d, t, heads): [torch.randn(1, heads, t, d, requires_grad=True) for _ in range(3)] +
                    [torch.randn(1, heads, t, d)]}
        q, k, v, g = made[d, t, heads]

        def forward():
            with torch.no_grad():
                F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))

        def both():
            q.grad = k.grad = v.grad = None
            F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal)).backward(g)

        call = both if backward else forward
        call()
        best, end = float("inf"), time.perf_counter() + seconds
        while True:
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
            if time.perf_counter() >= end:
                break
        print(best, flush=True)


if __name__ == "__main__":
    main()
