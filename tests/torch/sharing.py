"""Processes and PyTorch's CUDA memory: a tensor sent to a spawned process; os.fork after CUDA was used.

  sharing.py sent|forked
"""
import os
import sys

import torch
import torch.multiprocessing as mp

MIB = 1 << 20


def receiver(queue, back):
    os.environ["MOMENTS"] += ".child"
    from moment import moment
    got = queue.get()
    own = torch.zeros(2 * MIB, device="cuda")
    moment("child has both")
    back.put((os.getpid(), got.numel() * got.element_size()))
    del got
    moment("child gave it back")
    del own
    moment("child has nothing")


def sent():
    from moment import moment
    context = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    child = context.Process(target=receiver, args=(queue, back))
    child.start()
    tensor = torch.zeros(6 * MIB, device="cuda")
    moment("before")
    queue.put(tensor)
    print("child", *back.get(), flush=True)
    child.join()
    moment("after")
    del tensor
    torch.cuda.ipc_collect()
    moment("collected")
    print("exit", child.exitcode)


def forked():
    from moment import moment
    kept = torch.zeros(MIB, device="cuda")
    moment("before")
    pid = os.fork()
    if pid == 0:
        try:
            torch.zeros(1, device="cuda")
            code = 1
        except RuntimeError as error:
            code = 0 if "re-initialize CUDA in forked subprocess" in str(error) else 2
        os._exit(code)
    _, status = os.waitpid(pid, 0)
    print("child", os.waitstatus_to_exitcode(status))
    again = torch.zeros(MIB, device="cuda")
    moment("after")
    del kept, again


if __name__ == "__main__":
    {"sent": sent, "forked": forked}[sys.argv[1]]()
