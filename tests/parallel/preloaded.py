"""What the server of processes imports once, so that the processes of a layout need not.

``torch._dynamo`` comes in with the first distributed tensor, and takes seconds.
"""

import torch._dynamo
import torch.distributed.pipelining
import torch.distributed.tensor.parallel

import msprobe.adapters.pytorch.session
import tests.parallel.transformer

__all__ = ["msprobe", "tests", "torch"]
