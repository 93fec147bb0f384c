# measure: maxsize=N
"""Batches are put into a queue without a bound; the advice bounds it."""
import os
import queue
import threading
import time

import torch

batches = queue.Queue(4 if "FOLLOW" in os.environ else 0)


def consume():
    while batches.get() is not None:
        time.sleep(0.005 if "FOLLOW" in os.environ else 5)


thread = threading.Thread(target=consume, daemon=True)
thread.start()
warm = torch.zeros(1 << 20, device="cuda")
for batch in range(400):
    batches.put(torch.rand(64, 3, 128, 128, device="cuda"))
batches.put(None)
thread.join()
