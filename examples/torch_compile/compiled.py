"""A program that uses torch.compile with trtcache as its backend: the second run builds nothing."""

import torch

from trtcache.integrations import torch_compile

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 3)).eval()
fast = torch.compile(model, backend="trtcache")

with torch.inference_mode():
    x = torch.randn(4, 8)
    torch.testing.assert_close(fast(x), model(x))

for report in torch_compile.reports():
    print(report.engines[0].partitions[0].outcome)
