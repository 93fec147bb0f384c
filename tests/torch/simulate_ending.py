"""Loops that end by the host's own state, however often they read from the GPU: none is stopped in a dry run."""
import queue
import random
import signal
import sys
import threading
import time

import torch

d = "cuda"
N = 160  # more reads than --simulate-loops=100 allows without progress
m = torch.nn.Linear(10, 2).to(d)
o = torch.optim.SGD(m.parameters(), 0.1)
X, Y = torch.randn(64, 10, device=d), torch.ones(64, dtype=torch.long, device=d)


def step():
    o.zero_grad()
    l = torch.nn.functional.cross_entropy(m(X), Y)
    l.backward()
    o.step()
    return l.item()


def ranged():
    for i in range(N):
        step()


def whiled():
    i = 0
    while i < N:
        step()
        i += 1


def nanogpt():
    it = 0
    while True:
        lossf = step()
        it += 1
        if it > N:
            break


def derived():
    it = 0
    while True:
        l = step()
        it += 1
        done = it >= N
        if done:
            break


class Trainer:
    def __init__(self):
        self.global_step = 0
        self.max_steps = N

    def should_stop(self):
        return self.global_step >= self.max_steps

    def fit(self):
        while not self.should_stop():
            self.training_step()

    def training_step(self):
        l = step()
        self.global_step += 1
        return l


def trainer():
    Trainer().fit()


def evaluation():
    done = False
    while not done:
        for _ in range(N):
            step()
        done = True


def server():
    q = queue.Queue()
    for i in range(N):
        q.put({"prompt": [i % 50] * 4})
    q.put(None)
    while True:
        r = q.get()
        if r is None:
            break
        x = torch.tensor(r["prompt"], device=d)
        (x + 1).sum().item()


def env():
    class Env:
        def __init__(self):
            self.t = 0

        def step(self, a):
            self.t += 1
            return [random.random()] * 4, 0.0, self.t % N == 0
    e = Env()
    for ep in range(2):
        done, obs = False, [0.0] * 4
        while not done:
            a = m(torch.tensor(obs + obs + obs[:2], device=d)).argmax().item()
            obs, r, done = e.step(a)


def gpuenv():
    class Env:
        def __init__(self):
            self.t = 0
            self.s = torch.zeros(10, device=d)

        def step(self, a):
            self.t += 1
            return self.s, 0.0, self.t % N == 0
    e = Env()
    for ep in range(2):
        done = False
        obs = e.s
        while not done:
            a = m(obs).argmax().item()
            obs, r, done = e.step(a)


def small():
    def inner():
        t = 0
        done = False
        while not done:
            step()
            t += 1
            done = t >= 7
    for _ in range(N // 7):
        inner()


def iterated():
    it = iter(range(N))
    while True:
        try:
            next(it)
        except StopIteration:
            break
        step()


def decay():
    lr = 1.0
    while lr > 1e-6:
        for _ in range(12):
            step()
        lr *= 0.5


def timed():
    t = time.time()
    while time.time() - t < 1:
        step()


def scaler():
    s = torch.amp.GradScaler("cuda")
    i = 0
    while i < N:
        o.zero_grad()
        l = m(X).sum()
        s.scale(l).backward()
        s.unscale_(o)
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        s.step(o)
        s.update()
        i += 1
        assert not torch.isnan(l)


def generator():
    def batches():
        i = 0
        while True:
            yield X[i % 60:]
            i += 1
            if i >= N:
                return
    for b in batches():
        m(b).sum().item()


def infinite():
    def batches():
        while True:
            for i in range(64):
                yield X[i:]
    it = batches()
    seen = 0
    while True:
        b = next(it)
        m(b).sum().item()
        seen += 1
        if seen == N:
            break


def event():
    stop = threading.Event()
    threading.Timer(1, stop.set).start()
    while not stop.is_set():
        step()


running = True


def signaled():
    def off(*_):
        global running
        running = False
    signal.signal(signal.SIGALRM, off)
    signal.alarm(1)
    while running:
        step()


class Prefetcher:
    def __init__(self, n):
        self.it = iter([X[i % 60:] for i in range(n)])
        self.preload()

    def preload(self):
        try:
            self.next_input = next(self.it)
        except StopIteration:
            self.next_input = None

    def next(self):
        x = self.next_input
        self.preload()
        return x


def prefetch():
    p = Prefetcher(N)
    x = p.next()
    while x is not None:
        m(x).sum().item()
        x = p.next()


def listpop():
    todo = [X[i % 60:] for i in range(N)]
    while todo:
        m(todo.pop()).sum().item()


def patience():
    best, bad = 1e9, 0
    while bad < N:
        l = step()
        if l < best:
            best, bad = l, 0
        else:
            bad += 1


def epochs():
    epoch = 0
    while epoch < 3:
        for i in range(0, 64):
            for j in range(2):
                m(X[i:]).sum().item()
        epoch += 1


for name in sys.argv[1:]:
    globals()[name]()
    print(name, "ended", flush=True)
