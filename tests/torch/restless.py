"""A training loop with threads, forks and signals that gpuspy attaches to again and again: each round prints the same line,
until its input ends."""
import os
import select
import signal
import subprocess
import sys
import threading

import torch

handled = []
signal.signal(signal.SIGUSR1, lambda *_: handled.append(1))
signal.signal(signal.SIGALRM, lambda *_: handled.append(2))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
optimizer = torch.optim.Adam(model.parameters())


def step(rows):
    loss = model(torch.randn(rows, 64, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().cpu().shape


def aside(sums):
    for _ in range(20):
        torch.ones(1000, device="cuda").mul(2)
        sums.append(torch.ones(10).sum().item())


def child():
    pid = os.fork()
    if not pid:
        os._exit(int(torch.ones(42).sum().item()) if len(bytearray(1 << 16)) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def round_of_all():
    del handled[:]
    before, sums = torch.cuda.memory_allocated(), []
    beside = [threading.Thread(target=aside, args=(sums,)) for _ in range(2)]
    for thread in beside:
        thread.start()
    shapes = []
    for i in range(8):
        shapes.append(tuple(step(32 + i)))
        os.kill(os.getpid(), signal.SIGUSR1)
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
    while handled.count(2) == 0:
        step(7)
    for thread in beside:
        thread.join()
    torch.cuda.synchronize()
    started = subprocess.run([sys.executable, "-S", "-c", "print(6 * 7)"], capture_output=True, text=True)
    return (shapes, sum(sums), len(sums), handled, child(), started.returncode, started.stdout, started.stderr,
            torch.cuda.memory_allocated() - before)


round_of_all()
while True:
    print(round_of_all(), flush=True)
    if select.select([sys.stdin], [], [], 0)[0]:
        break
print("end")
