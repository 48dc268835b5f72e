"""What the server of processes imports once, so that the processes of a layout need not."""

from torch.distributed import tensor as _tensor  # noqa: F401

import msprobe.adapters.pytorch.session  # noqa: F401
