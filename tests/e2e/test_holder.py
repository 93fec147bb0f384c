"""The statement that keeps growing memory alive, guessed from the source. The cases are from issues in public trackers,
reduced to a few lines: SHAPES leak; LIKENESSES have a statement that looks the same and keeps nothing."""
import sqlite3
import time

import pytest

from conftest import SAN

# The part of PyTorch that a graph needs: a tensor refers to what it was computed from, until it is detached.
TENSOR = """
import ctypes
lib = ctypes.CDLL("libcudart.so.13")
class Tensor:
    def __init__(self, *parents, bytes=1 << 20):
        self.at, self.parents = ctypes.c_void_p(), parents
        if lib.cudaMalloc(ctypes.byref(self.at), ctypes.c_size_t(bytes)):
            raise MemoryError("CUDA out of memory")
    def __del__(self):
        lib.cudaFree(self.at)
    def __add__(self, other):
        return Tensor(self, other, bytes=4096)
    __radd__ = __add__
    def detach(self):
        new = Tensor.__new__(Tensor)
        new.at, new.parents, new.storage = ctypes.c_void_p(), (), self.at
        return new
    def item(self): return 1.0
    def cpu(self): return Host()
    def __float__(self): return 1.0
    def tolist(self): return [1.0]
    def numpy(self): return b""
    def backward(self): return None
class Host:
    def numpy(self): return b""
def cat(parts): return Tensor(*parts[1:])
class Optimizer:
    def step(self): self.state = Tensor()
"""
MODULE = """
class Module:
    hooks = ()
    def register_forward_hook(self, hook):
        self.hooks += (hook,)
    def __call__(self, *arguments):
        output = self.forward(*arguments)
        for hook in self.hooks: hook(self, arguments, output)
        return output
"""
METRIC = """
class Metric:
    def __init__(self):
        self.values = []
    def record(self, value, step):
        self.values += value,
def init():
    return Metric()
class Scaler:
    def record(self, value): pass
    def add_scalar(self, *values): pass
    print = info = set_description_str = add_scalar
"""
HEAD = """
from torch.nn.modules.module import Module
from torch._tensor import Optimizer, Tensor, cat
class Net(Module):
    def __init__(self):
        self.first, self.second = Layer(), Layer()
    def forward(self, x):
        self.features = self.first(x)
        return self.second(self.features)
class Layer(Module):
    def forward(self, x):
        hidden = Tensor(x)
        return Tensor(hidden)
def criterion(out):
    return Tensor(out, bytes=4096)
def batch():
    return Tensor(bytes=8192)
class Meter:
    def __init__(self):
        self.sum, self.last = 0, None
    def update(self, value):
        self.sum += value
class Buffer:
    pass
model = Net()
"""


def prepare(recording):
    """Writes the package that stands for PyTorch; returns its folder."""
    for path, text in (("_tensor.py", TENSOR), ("metric.py", METRIC), ("nn/modules/module.py", MODULE), ("__init__.py", ""),
                       ("nn/__init__.py", ""), ("nn/modules/__init__.py", "")):
        place = recording.folder / "torch" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return recording.folder


def run(recording, body, **environment):
    """Runs it until it is out of memory."""
    recording.python(HEAD + body, SIMCUDA_MEMORY="768MiB", PYTHONPATH=prepare(recording), check=False, **environment)
    return recording.report()


def leaks(recording, body):
    """Returns the report, and the holders of the failure and of growth."""
    report = run(recording, body)
    found = [h for oom in report["oom"] for h in oom["holders"]]
    every = found + [h for growth in report["growth"] for h in growth["holders"]]
    lines = (HEAD + body).split("\n")
    for h in every:
        assert h["certainty"] == "guess" and h["why"] and lines[h["line"] - 1].strip().split("  #")[0] == h["text"], h
    return report, {h["text"] for h in every}


LOOP = "for step in range(1000):\n    out = model(batch())\n    loss = criterion(out)\n    loss.backward()\n"
SHAPES = {
    # TRI-ML/packnet-sfm 51: the losses of all steps are appended with their graphs
    "append": ("losses = []\n" + LOOP + "    losses.append(loss)\n", "losses.append(loss)"),
    # BatsResearch/labelmodels 4, google/brax 152, ray-project/ray 40940
    "sum": ("total = 0\n" + LOOP + "    total += loss\nprint(total)\n", "total += loss"),
    # pai4451/ML2021 2: an attribute of what the model returned
    "attribute": ("def train():\n    train_loss = 0\n    for step in range(1000):\n        output = Buffer()\n"
                  "        output.loss = criterion(model(batch()))\n        train_loss += output.loss\ntrain()\n",
                  "train_loss += output.loss"),
    # horovod/horovod 641, microsoft/SpareNet 12: a meter adds up tensors
    "meter": ("meter = Meter()\n" + LOOP + "    meter.update(loss)\n", "self.sum += value"),
    # pytorch/vision references/detection/utils.py, facebookresearch/detr util/misc.py: the class makes the missing meters
    "meter by key": ("from collections import defaultdict\nclass Smoothed:\n    def __init__(self):\n        self.total = 0\n"
                     "    def update(self, value, n=1):\n        self.total += value * n\nclass Logger:\n    def __init__(self):\n"
                     "        self.meters = defaultdict(Smoothed)\n    def update(self, **kwargs):\n        for k, v in kwargs.items():\n"
                     "            self.meters[k].update(v)\nTensor.__mul__ = lambda x, n: Tensor(x, bytes=4096)\nlogger = Logger()\n" + LOOP +
                     "    logger.update(loss=loss)\n", "self.total += value * n"),
    # jacobgil/pytorch-grad-cam 71, MarvinLvn/voice-type-classifier 12
    "predictions": ("predictions = []\nfor step in range(1000):\n    p = model(batch())\n    predictions.append(p)\n",
                    "predictions.append(p)"),
    # nitrain/nitrain 27: the outputs of each batch in a list of lists
    "list": ("def predict():\n    outs = [[]]\n    for step in range(1000):\n        out = model(batch())\n"
             "        outs[0].append(out)\n    return outs\npredict()\n", "outs[0].append(out)"),
    # the first iteration makes what the others continue
    "first value": ("total = None\n" + LOOP + "    if total is None:\n        total = loss\n    else:\n"
                    "        total = cat([loss, total])\n", "total = cat([loss, total])"),
    "first step": (LOOP + "    if step == 0:\n        total = loss\n    else:\n        total = total + loss\n",
                   "total = total + loss"),
    "first value of an attribute": (
        "class Stream:\n    def __init__(self):\n        self.context = None\n    def take(self):\n        out = model(batch())\n"
        "        if self.context is None:\n            self.context = out\n        else:\n"
        "            self.context = cat([out, self.context, out])\nstream = Stream()\nfor step in range(1000):\n    stream.take()\n",
        "self.context = cat([out, self.context, out])"),
    "get and set": ("totals = {}\n" + LOOP + "    totals['loss'] = totals.get('loss', 0) + loss\n",
                    "totals['loss'] = totals.get('loss', 0) + loss"),
    # an epoch's loop that also contains the loop of the training's steps
    "validation in an epoch": ("for epoch in range(3):\n    for step in range(20):\n        optimizer = Optimizer()\n"
                               "        optimizer.step()\n    total = 0\n    for step in range(1000):\n"
                               "        loss = criterion(model(batch()))\n        total += loss\n", "total += loss"),
    # pytorch/pytorch 1346: the gradients of the last step are in the graph of the next
    "carried sum": ("total = Tensor(bytes=512)\n" + LOOP + "    total = total + loss\n", "total = total + loss"),
    # Mikubill/sketch2img 7: features of each call stay in a dictionary of the object
    "dictionary": ("class Store:\n    def __init__(self):\n        self.history = {}\n    def run(self, key):\n"
                   "        out = model(batch())\n        self.history[key] = out\n        return 1\nstore = Store()\n"
                   "for step in range(1000):\n    store.run(step)\n", "self.history[key] = out"),
    # as docs/train.py
    "attribute of the model": ("features = []\n" + LOOP + "    features.append(model.features)  # for later\n",
                               "features.append(model.features)"),
    "extend": ("results = []\nfor step in range(1000):\n    outs = [model(batch()) for _ in range(2)]\n    results.extend(outs)\n",
               "results.extend(outs)"),
    "plus list": ("outputs = []\nfor step in range(1000):\n    out = model(batch())\n    outputs += [out]\n", "outputs += [out]"),
    "several lines": ("losses = []\nfor step in range(1000):\n    out = model(\n        batch(),  # a ) in a comment\n    )\n"
                      "    text = '''\n    losses.append(nothing)\n    '''\n    losses.append(out)\n", "losses.append(out)"),
    "generator": ("def predict():\n    for step in range(1000):\n        yield model(batch())\nouts = list(predict())\n",
                  "outs = list(predict())"),
    "closure": ("def make():\n    seen = []\n    def step():\n        out = model(batch())\n        seen.append(out)\n        return 1.0\n"
                "    return step\nstep = make()\nwhile True:\n    step()\n", "seen.append(out)"),
    "in a branch": ("kept = {}\nfor step in range(3000):\n    out = model(batch())\n    if step % 3 == 0:\n        kept[step] = out\n    else:\n"
                    "        del out\n", "kept[step] = out"),
    # a server that keeps the state of each session
    "list in a table": ("sessions = {}\ndef chat(user):\n    parts = []\n    for layer in range(2):\n        out = model(batch())\n"
                        "        parts.append(out)\n    sessions[user] = parts\nfor step in range(1000):\n    chat(step)\n",
                        "sessions[user] = parts"),
    "list in a list": ("history = []\ndef run():\n    parts = []\n    for layer in range(2):\n        parts.append(model(batch()))\n"
                       "    history.append(parts)\nfor step in range(1000):\n    run()\n", "history.append(parts)"),
    "detached beside it": ("def distance(a, b):\n    return Tensor(a, b, bytes=4096)\nlosses = []\nfor step in range(1000):\n    out = model(batch())\n"
                           "    loss = distance(model(batch()), out.detach())\n    losses.append(loss)\n", "losses.append(loss)"),
    "closure over an argument": ("def later(step, loss):\n    return lambda: print(step, loss.item())\npending = []\n" + LOOP +
                                 "    pending.append(later(step, loss))\n", "pending.append(later(step, loss))"),
    # an agent's next state is stored as the state of the next iteration
    "next iteration": ("states = []\nfor step in range(1000):\n    state = batch() if step == 0 else state\n    states.append(state)\n"
                       "    state = Tensor()\n", "states.append(state)"),
    "next iteration by a call": ("class Memory:\n    def __init__(self):\n        self.rows = []\n    def push(self, *row):\n"
                                 "        self.rows.append(row)\nmemory, state = Memory(), Tensor()\nfor step in range(1000):\n"
                                 "    memory.push(state, step)\n    following = Tensor()\n    state = following\n", "self.rows.append(row)"),
    "statements of one line": ("kept = []; other = []\nfor step in range(1000):\n    x = batch(); out = model(x); kept.append(out); n = 1\n",
                               "x = batch(); out = model(x); kept.append(out); n = 1"),
    "cached property": ("import functools\nclass Item:\n    @functools.cached_property\n    def vector(self):\n        return model(batch())\n"
                        "items = [Item() for i in range(1000)]\nfor item in items:\n    item.vector\n", "@functools.cached_property"),
    "called in a comprehension": ("class Stopping:\n    def __init__(self):\n        self.seen = []\n    def __call__(self, step, out):\n        self.seen.append(out)\n"
                                  "        return False\nclass Fit:\n    def __init__(self):\n        self.callbacks = [Stopping()]\n    def run(self):\n"
                                  "        for step in range(1000):\n            out = model(batch())\n            if any(c(step, out) for c in self.callbacks):\n"
                                  "                break\nFit().run()\n", "self.seen.append(out)"),
    "object that a library made": ("from torch import metric\nrun = metric.init()\nfor step in range(1000):\n    out = model(batch())\n"
                                   "    run.record({'step': step, 'out': out}, 1)\n", "run.record({'step': step, 'out': out}, 1)"),
    "gathered tasks": ("import asyncio\nasync def embed(i):\n    return model(batch())\nasync def main():\n"
                       "    vectors = await asyncio.gather(*[embed(i) for i in range(1000)])\nasyncio.run(main())\n",
                       "vectors = await asyncio.gather(*[embed(i) for i in range(1000)])"),
    "called attribute": ("class Store:\n    def __init__(self):\n        self.maps = {'a': []}\n    def __call__(self, x, key):\n        self.maps[key].append(x)\n"
                         "        return x\nclass Run:\n    def __init__(self, store):\n        self.store = store\n    def step(self):\n"
                         "        out = model(batch())\n        out = self.store(out, 'a')\n        return 1\nrun = Run(Store())\n"
                         "for step in range(1000):\n    run.step()\n", "self.maps[key].append(x)"),
    # a metric that keeps what it is given, in a library's file
    "object of a library": ("from torch.metric import Metric\nmetric = Metric()\nfor step in range(1000):\n    out = model(batch())\n"
                            "    metric.record(out, step)\n", "metric.record(out, step)"),
    # a tree whose nodes are made elsewhere
    "attribute of an argument": ("class Node: pass\ndef expand(node):\n    out = model(batch())\n    node.hidden = out\n"
                                 "nodes = [Node() for n in range(1000)]\nfor node in nodes:\n    expand(node)\n", "node.hidden = out"),
    "function of autograd": ("class Function:\n    @classmethod\n    def apply(cls, *values):\n        return cls.forward(None, *values)\n"
                             "saved = []\nclass Square(Function):\n    @staticmethod\n    def forward(ctx, x):\n        saved.append(x)\n"
                             "        return 1\nfor step in range(1000):\n    out = model(batch())\n    Square.apply(out)\n", "saved.append(x)"),
    "a number beside it": ("class Average:\n    def __init__(self):\n        self.sum = self.count = 0\n    def update(self, value, n=1):\n"
                           "        self.sum += value\n        self.count += n\naverage = Average()\nfor step in range(1000):\n"
                           "    average.update(criterion(model(batch())), 16)\n", "self.sum += value"),
    "inner list": ("def forward():\n    outs = []\n    for part in range(2):\n        outs.append(model(batch()))\n    return outs\n"
                   "history = []\nfor step in range(1000):\n    history.append(forward())\n", "history.append(forward())"),
    "queue": ("import queue\nq = queue.Queue()\nfor step in range(1000):\n    out = model(batch())\n    q.put((step, out))\n",
              "q.put((step, out))"),
    # a callback is given what a step returns
    "argument": ("class Log:\n    def __init__(self):\n        self.outputs = []\n    def on_batch_end(self, step, out):\n"
                 "        self.outputs.append(out)\nlog = Log()\nfor step in range(1000):\n    out = model(batch())\n    log.on_batch_end(step, out)\n",
                 "self.outputs.append(out)"),
    "argument by name": ("kept = []\ndef keep(text, value=None, *more):\n    record(value)\ndef record(x):\n    kept.append(x)\n" + LOOP +
                         "    keep('loss', value=loss)\n", "kept.append(x)"),
    "local passed on": ("class Store:\n    def __init__(self):\n        self.kept = {}\n    def save(self, step):\n        state = {k: model(batch()) for k in 'ab'}\n"
                        "        self.kept[step] = state\nstore = Store()\nfor step in range(1000):\n    store.save(step)\n", "self.kept[step] = state"),
    "comprehension": ("outs = cat([model(batch()) for step in range(1000)])\n", "outs = cat([model(batch()) for step in range(1000)])"),
    "returned comprehension": ("def predict():\n    return cat([model(batch()) for step in range(1000)])\npredict()\n",
                               "return cat([model(batch()) for step in range(1000)])"),
    "futures": ("from concurrent.futures import ThreadPoolExecutor\ndef work(step):\n    return model(batch())\nfutures = []\n"
                "with ThreadPoolExecutor(1) as pool:\n    for step in range(1000):\n        future = pool.submit(work, step)\n"
                "        futures.append(future)\n        future.result()\n", "futures.append(future)"),
    "task": ("import asyncio\nasync def work(step):\n    await asyncio.sleep(0)\n    return model(batch())\nasync def serve():\n    tasks = []\n"
             "    for step in range(1000):\n        task = asyncio.create_task(work(step))\n        tasks.append(task)\n        await task\nasyncio.run(serve())\n",
             "tasks.append(task)"),
    "heap": ("import heapq\nhardest = []\nfor step in range(1000):\n    out = model(batch())\n    heapq.heappush(hardest, (step, out))\n",
             "heapq.heappush(hardest, (step, out))"),
    "merged": ("log = {}\nfor step in range(1000):\n    out = model(batch())\n    log = {**log, step: out}\n", "log = {**log, step: out}"),
    # the graph is retained for a second backward pass; what is kept is kept elsewhere
    "retained": ("losses = []\nfor step in range(1000):\n    out = model(batch())\n    loss = criterion(out)\n    loss.backward()  # retain_graph=True\n"
                 "    dict(retain_graph=True)\n    losses.append(loss)\n", "losses.append(loss)"),
    "unpacked": ("outs = []\nfor step in range(1000):\n    out = model(batch())\n    outs = [*outs, out]\n", "outs = [*outs, out]"),
    # a recurrent state that is not detached: each pass refers to the one before
    "state": ("class Stream(Module):\n    def __init__(self):\n        self.state = Tensor(bytes=512)\n    def forward(self, x):\n        h = Net()(x) + self.state\n"
              "        self.state = h\n        return 1\nstream = Stream()\nfor step in range(1000):\n    stream(batch())\n", "self.state = h"),
    # the same through a loop over the parts of the sequence
    "state of a sequence": ("class Stream(Module):\n    def __init__(self):\n        self.state = Tensor(bytes=512)\n    def forward(self, x):\n"
                            "        outs, state = [], self.state\n        for t in range(2):\n            state = Net()(x) + state\n"
                            "        self.state = state\n        return 1\nstream = Stream()\nfor step in range(500):\n    stream(batch())\n",
                            "self.state = state"),
    # a logger's row: beside a number, which is on the host
    "row": ("class Run:\n    def __init__(self):\n        self.rows = []\n    def log(self, values):\n        row = dict(values)\n"
            "        self.rows.append(row)\nrun = Run()\n" + LOOP + "    run.log({'loss': loss.item(), 'out': out})\n", "self.rows.append(row)"),
    # Lightning-AI/torchmetrics 3294: an object that is called, through its base class
    "metric": ("class Metric:\n    def __call__(self, *args):\n        self.update(*args)\nclass Auc(Metric):\n    def __init__(self):\n"
               "        self.preds = []\n    def update(self, preds, target):\n        self.preds.append(preds)\nmetric = Auc()\n"
               "for step in range(1000):\n    out = model(batch())\n    metric(out, step)\n", "self.preds.append(preds)"),
    # objects of a dictionary, each called by a loop
    "members": ("class Recall:\n    def __init__(self):\n        self.seen = []\n    def __call__(self, scores):\n        self.seen.append(scores)\n"
                "metrics = {'r': Recall()}\nfor step in range(1000):\n    out = model(batch())\n    for m in metrics.values():\n        m(out)\n",
                "self.seen.append(scores)"),
    "tuple": ("outs = ()\nfor step in range(1000):\n    out = model(batch())\n    outs += (out,)\n", "outs += (out,)"),
    "sums": ("sums = {}\nfor step in range(1000):\n    losses = {'a': criterion(model(batch()))}\n"
             "    sums = {k: sums.get(k, 0) + v for k, v in losses.items()}\n", "sums = {k: sums.get(k, 0) + v for k, v in losses.items()}"),
    # a recurrent state in a loop without backward()
    "carried": ("def cell(x, h):\n    return Net()(x) + h\nh = Tensor(bytes=512)\nfor step in range(1000):\n    x = batch()\n    h = cell(x, h)\n",
                "h = cell(x, h)"),
    # layers of one pass: their loop ends with it, and the caller stores what the pass returns
    "layers of a module": ("class Stack(Module):\n    def forward(self, x):\n        for layer in range(3):\n            x = Net()(x)\n"
                           "        return x + x\nstack, outs = Stack(), []\nfor step in range(300):\n    outs.append(stack(batch()))\n",
                           "outs.append(stack(batch()))"),
    "layers of a function": ("def apply(x):\n    for layer in range(3):\n        x = Net()(x)\n    return x + x\nouts = []\n"
                             "for step in range(300):\n    outs.append(apply(batch()))\n", "outs.append(apply(batch()))"),
    # the same without modules: the graph is retained for the next pass, and the heaviest line makes the input
    "carried, retained": ("def grad(loss, **how):\n    return 1\nh = Tensor(bytes=512)\nfor step in range(1000):\n    x = batch()\n    h = x + h\n"
                          "    grad(h, retain_graph=True)\n", "h = x + h"),
    "walrus": ("outs = []\nfor step in range(1000):\n    if (out := model(batch())) is not None:\n        outs.append(out)\n", "outs.append(out)"),
    # a logger that is called, given what its own line makes
    "keywords": ("class Log:\n    def __call__(self, step, **values):\n        self.items.append((step, values))\nlog, other = Log(), 1\nlog.items = []\n"
                 "for step in range(1000):\n    log(step, out=model(batch()))\n", "self.items.append((step, values))"),
    "long queue": ("from collections import deque\nqueue = deque(maxlen=100_000)\nfor step in range(1000):\n    out = model(batch())\n    queue.append(out)\n",
                   "queue.append(out)"),
    "exc_info": ("import sys\nfailed = {}\ndef work(step):\n    out = model(batch())\n    raise ValueError(step)\nfor step in range(1000):\n"
                 "    try:\n        work(step)\n    except ValueError:\n        failed[step] = sys.exc_info()\n", "failed[step] = sys.exc_info()"),
    # CompVis/latent-diffusion: the images of all steps of a sampler, which an operator makes
    "operator": ("trail, base = [], Tensor()\nfor step in range(1000):\n    y = base + base\n    trail.append(y)\n", "trail.append(y)"),
    "key of text": ("kept = {}\nfor step in range(1000):\n    out = model(batch())\n    kept[f'step {step}'] = out\n", "kept[f'step {step}'] = out"),
    # of two lists, the one that is never emptied
    "never cleared": ("outs, shown = [], []\nfor step in range(1000):\n    out = model(batch())\n    outs.append(out)\n    shown.append(out)\n"
                      "    if step % 4 == 3:\n        outs.clear()\n", "shown.append(out)"),
    # a prefix cache: each node is stored in the one before
    "tree": ("class Node:\n    def __init__(self, value=None):\n        self.value, self.children = value, {}\nroot = Node()\n"
             "for step in range(1000):\n    node = root\n    for part in range(2):\n        out = model(batch())\n        node.children[step] = Node(out)\n"
             "        node = node.children[step]\n", "node.children[step] = Node(out)"),
    # an optimizer's own state: the list is an element of a dictionary
    "row of a table": ("class Slow:\n    def __init__(self):\n        self.state = {}\n    def step(self):\n        for p in (1, 2):\n"
                       "            row = self.state.setdefault(p, {'history': []})\n            row['history'].append(Tensor())\nslow = Slow()\n"
                       "for step in range(1000):\n    slow.step()\n", "row['history'].append(Tensor())"),
    # torchmetrics' FID: one of two lists
    "one of two": ("class Fid:\n    def __init__(self):\n        self.real, self.fake = [], []\n    def update(self, x, real):\n"
                   "        features = model(x)\n        (self.real if real else self.fake).append(features)\nfid = Fid()\n"
                   "for step in range(1000):\n    fid.update(batch(), step % 2)\n", "(self.real if real else self.fake).append(features)"),
    # pytorch/pytorch 23900: cycle() keeps each batch
    "cycle": ("from itertools import cycle\ndef batches():\n    for i in range(2000):\n        yield Tensor()\n"
              "for x, y in zip(cycle(batches()), range(2000)):\n    loss = x + x\n", "for x, y in zip(cycle(batches()), range(2000)):"),
    "tee": ("import itertools\ndef batches():\n    for i in range(2000):\n        yield Tensor()\nfirst, second = itertools.tee(batches())\n"
            "for x in first:\n    loss = x + x\n", "first, second = itertools.tee(batches())"),
    # a scheduler refers to its optimizer
    "wrapped": ("class Scheduler:\n    def __init__(self, optimizer):\n        self.optimizer = optimizer\ntable, rates = {}, []\nfor step in range(1000):\n"
                "    optimizer = Optimizer()\n    scheduler = Scheduler(optimizer)\n    table[step] = scheduler\n    optimizer.step()\n", "table[step] = scheduler"),
    # DINO's centre: a moving average of outputs that have a graph, in a method
    "moving average": ("def lerp(a, b):\n    return Tensor(a, b, bytes=4096)\nclass Centre:\n    def __init__(self):\n        self.value = Tensor(bytes=512)\n"
                       "    def update(self, x):\n        self.value = lerp(self.value, x)\ncentre = Centre()\nfor step in range(1000):\n"
                       "    out = model(batch())\n    centre.update(out)\n", "self.value = lerp(self.value, x)"),
    # graphdeco-inria/gaussian-splatting 437, JuliusQv in SuGaR 40: what a class allocates in its constructor belongs to the object
    "constructor": ("class Camera:\n    def __init__(self, uid):\n        self.uid, self.image = uid, Tensor()\ncameras = []\nfor uid in range(1000):\n"
                    "    cameras.append(Camera(uid))\n", "cameras.append(Camera(uid))"),
    # OpenNMT's Beam: a base class and a method of the constructor make it; the list within is the object's own
    "base of a constructor": ("class Base:\n    def __init__(self):\n        self.parts = []\n        self.build()\n    def build(self):\n"
                              "        for part in range(2):\n            self.parts.append(Tensor())\nclass Beam(Base):\n    def __init__(self):\n"
                              "        super().__init__()\n        self.done = False\nbeams = {}\nfor step in range(1000):\n    beam = Beam()\n    beams[step] = beam\n",
                              "beams[step] = beam"),
    "dataclass": ("from dataclasses import dataclass, field\n@dataclass\nclass Sample:\n    label: int\n    mask: object = field(default_factory=lambda: Tensor())\n"
                  "    def __post_init__(self):\n        self.image = Tensor()\nseen = []\nfor step in range(1000):\n    seen.append(Sample(step))\n",
                  "seen.append(Sample(step))"),
    "new": ("class State(tuple):\n    def __new__(cls, values):\n        return super().__new__(cls, [Tensor() for _ in values])\nstates = []\n"
            "for step in range(1000):\n    states.append(State('ab'))\n", "states.append(State('ab'))"),
    # georgysavva/diffusion-for-simulation: Episode.load()
    "class method": ("class Episode:\n    @classmethod\n    def load(cls, path):\n        episode = cls()\n        episode.obs = Tensor()\n        return episode\n"
                     "episodes = []\nfor step in range(1000):\n    episodes.append(Episode.load(step))\n", "episodes.append(Episode.load(step))"),
    # ifzhang/FairMOT 348: a list of the class, not of the object
    "list of the class": ("class Track:\n    features = []\n    def __init__(self):\n        self.features.append(Tensor())\nfor step in range(1000):\n    track = Track()\n",
                          "self.features.append(Tensor())"),
    "registers itself": ("class Node:\n    every = []\n    def __init__(self):\n        Node.every.append(self)\n        self.value = Tensor()\nfor step in range(1000):\n"
                         "    node = Node()\n", "Node.every.append(self)"),
    # Zhang et al.'s progressive networks (TomVeniat/ProgressiveNeuralNetworks.pytorch 3): a module for each task
    "modules": ("experts = []\nclass Expert(Module):\n    def __init__(self):\n        self.weight = Tensor()\n    def forward(self, x):\n        return x\n"
                "for step in range(1000):\n    expert = Expert()\n    experts.append(expert)\n", "experts.append(expert)"),
    # pclucas14/AML 1: an attribute for each task
    "buffers": ("class Net2:\n    def register_buffer(self, name, x):\n        object.__setattr__(self, name, x)\nnet = Net2()\nfor step in range(1000):\n    out = Tensor()\n"
                "    net.register_buffer(f'proto_{step}', out)\n", "net.register_buffer(f'proto_{step}', out)"),
    "attributes": ("def embed():\n    clip = Buffer()\n    for step in range(1000):\n        out = model(batch())\n        setattr(clip, f'frame_{step}', out)\n"
                   "    return clip\nembed()\n", "setattr(clip, f'frame_{step}', out)"),
    # the keys and values of a request's layers in a list of their own, which a session keeps
    "list of a step": ("class Server:\n    def __init__(self):\n        self.sessions = {}\n    def chat(self, user):\n        for turn in range(2):\n            new = []\n"
                       "            for layer in range(2):\n                new.append(Tensor())\n            past = new\n        self.sessions[user] = past\n"
                       "server = Server()\nfor step in range(1000):\n    server.chat(step)\n", "self.sessions[user] = past"),
    "bound by a name": ("from collections import deque\nclass Memory:\n    def __init__(self, capacity):\n        self.items = deque([], maxlen=capacity)\n"
                        "    def push(self, x):\n        self.items.append(x)\nmemory = Memory(10 ** 6)\nfor step in range(1000):\n    out = Tensor()\n"
                        "    memory.push(out)\n", "self.items.append(x)"),
    # jacobgil/pytorch-grad-cam: a hook for each image, never removed
    "large cache": ("from functools import lru_cache\n@lru_cache(4096)\ndef mask(n):\n    return Tensor()\n"
                    "for step in range(1000):\n    mask(step)\n", "@lru_cache(4096)"),
    "hooks of bound functions": (
        "from functools import partial\nclass Net2:\n    hooks = []\n    def register_forward_hook(self, hook):\n        Net2.hooks += [hook]\n"
        "class Explainer:\n    def __init__(self, net): self.net = net\n    def explain(self, image):\n"
        "        self.net.register_forward_hook(partial(print, image))\nexplainer = Explainer(Net2())\n"
        "for step in range(1000):\n    image = Tensor()\n    explainer.explain(image)\n",
        "self.net.register_forward_hook(partial(print, image))"),
    "hooks of lambdas": (
        "class Net2:\n    hooks = []\n    def register_forward_hook(self, hook):\n        Net2.hooks += [hook]\nnet = Net2()\n"
        "for step in range(1000):\n    image = Tensor()\n    net.register_forward_hook(lambda out, x=image: out)\n",
        "net.register_forward_hook(lambda out, x=image: out)"),
    "made and stored by a function": (
        "class Schedule:\n    def __init__(self, optimizer): self.optimizer = optimizer\nclass Session:\n    def __init__(self): self.all = []\n"
        "    def configure(self):\n        optimizer = Optimizer()\n        schedule = Schedule(optimizer)\n        self.all.append(schedule)\n"
        "        return optimizer, schedule\n    def restart(self):\n        optimizer, schedule = self.configure()\n"
        "        for step in range(2):\n            optimizer.step()\nsession = Session()\nfor cycle in range(1000):\n    session.restart()\n",
        "self.all.append(schedule)"),
    "sorted": (
        "def trial(n):\n    parts = Sequential(*[Tensor() for part in range(4)])\n    return n, parts\n"
        "class Sequential:\n    def __init__(self, *parts): self.parts = parts\n"
        "def sweep():\n    best = sorted((trial(n) for n in range(1000)), key=len)\n    return best[0]\nsweep()\n",
        "best = sorted((trial(n) for n in range(1000)), key=len)"),
    "hooks": ("class Net2:\n    hooks = []\n    def register_forward_hook(self, hook):\n        Net2.hooks += [hook]\nnet = Net2()\ndef cam(net, image):\n"
              "    def save(x):\n        return image\n    net.register_forward_hook(save)\nfor step in range(1000):\n    image = Tensor()\n    cam(net, image)\n",
              "net.register_forward_hook(save)"),
    # the beam search of many tutorials: each node refers to the one that it continues
    "linked objects": ("class Node:\n    def __init__(self, state, previous, token):\n        self.state, self.previous = state, previous\n"
                       "node = None\nfor step in range(1000):\n    h = Tensor()\n    node = Node(h, node, step)\n", "node = Node(h, node, step)"),
    "linked tuples": ("def search():\n    chain = ()\n    for step in range(1000):\n        h = Tensor()\n        chain = (h, chain)\nsearch()\n",
                      "chain = (h, chain)"),
    "object of another method": ("class Runner:\n    def __init__(self):\n        self.all = []\n    def phase(self):\n        self.opt = Optimizer()\n"
                                 "        self.all.append(self.opt)\n    def step(self):\n        self.opt.step()\nrunner = Runner()\n"
                                 "for step in range(1000):\n    runner.phase()\n    runner.step()\n", "self.all.append(self.opt)"),
    # style transfer: the sum over layers begins anew in each step
    "sum of a step": ("losses = []\nfor step in range(1000):\n    loss = 0\n    for layer in range(2):\n        loss = loss + criterion(model(batch()))\n"
                      "    losses.append(loss)\n    dict(retain_graph=True)\n", "losses.append(loss)"),
    # an evaluator gathers the results of each image in a dictionary
    "dictionary that is updated": ("class Evaluator:\n    def __init__(self):\n        self.predictions = {}\n    def update(self, results):\n"
                                   "        self.predictions.update(results)\nevaluator = Evaluator()\nfor step in range(1000):\n"
                                   "    out = Tensor()\n    evaluator.update({step: out})\n", "self.predictions.update(results)"),
    # fastai's GatherPreds: a callback reads an attribute of the object that calls it by a name that varies
    "attribute of the caller": ("class Gather:\n    def __init__(self):\n        self.preds = []\n    def after_batch(self):\n"
                                "        self.preds.append(self.learn.pred)\nclass Learner:\n    def __init__(self, callback):\n"
                                "        self.callback, callback.learn = callback, self\n    def call(self, event):\n"
                                "        getattr(self.callback, event)()\n    def run(self):\n        for step in range(1000):\n"
                                "            self.pred = Tensor()\n            self.call('after_batch')\nLearner(Gather()).run()\n",
                                "self.preds.append(self.learn.pred)"),
    # a trainer calls callbacks that it was given; their base class does nothing
    "callback": ("class Callback:\n    def on_end(self, outputs): pass\nclass Log(Callback):\n    def __init__(self):\n        self.outputs = []\n"
                 "    def on_end(self, outputs):\n        self.outputs.append(outputs)\nclass Trainer:\n    def __init__(self, callbacks):\n"
                 "        self.callbacks = callbacks\n    def run(self):\n        for step in range(1000):\n            out = Tensor()\n"
                 "            for callback in self.callbacks:\n                callback.on_end({'out': out})\nTrainer([Log()]).run()\n",
                 "self.outputs.append(outputs)"),
    # metrics that a function is given: one of their classes stores what it is called with
    "called objects": ("class Count:\n    def __init__(self):\n        self.n = 0\n    def __call__(self, out):\n        self.n += 1\n"
                       "class Values:\n    def __init__(self):\n        self.all = []\n    def __call__(self, out):\n        self.all.append(out)\n"
                       "def evaluate(metrics):\n    for step in range(1000):\n        out = Tensor()\n        for metric in metrics:\n"
                       "            metric(out)\nevaluate([Count(), Values()])\n", "self.all.append(out)"),
    "constant key": ("results = {'all': Tensor(bytes=512)}\n" + LOOP + "    results['all'] += loss\n", "results['all'] += loss"),
    # a study of trials: the function stores its model in the trial that it is given
    "table that was given": ("def objective(trial):\n    model = Tensor()\n    trial['model'] = model\n    return 1\nstudy = []\n"
                             "for step in range(1000):\n    trial = {'step': step}\n    objective(trial)\n    study += [trial]\n",
                             "trial['model'] = model"),
    "method like a set's": ("class Log:\n    def __init__(self):\n        self.values = {}\n    def add(self, name, value):\n"
                            "        self.values.setdefault(name, []).append(value)\nlog = Log()\nfor step in range(1000):\n    out = Tensor()\n"
                            "    log.add('out', out)\n", "self.values.setdefault(name, []).append(value)"),
    "one line": ("losses = []\nfor step in range(1000): losses.append(model(batch()))\n",
                 "for step in range(1000): losses.append(model(batch()))"),
    # names outside ASCII
    "umlaut": ("class Größe:\n    def __init__(self):\n        self.früher = []\n    def füge(self, x):\n"
               "        self.früher.append(x)\ngröße = Größe()\n" + LOOP + "    größe.füge(loss)\n", "self.früher.append(x)"),
    # several statements on a line, of which only the line is recorded
    "joined": ("losses = []\nfor step in range(1000):\n    x = batch(); out = model(x); loss = criterion(out)\n"
               "    loss.backward(); losses.append(loss)\n", "loss.backward(); losses.append(loss)"),
    "joined on one line": ("kept = []\nfor step in range(1000): x = batch(); out = model(x); kept.append(out)\n",
                           "for step in range(1000): x = batch(); out = model(x); kept.append(out)"),
    "merged": ("seen = {}\n" + LOOP + "    seen |= {step: loss}\n", "seen |= {step: loss}"),
    "part of a list": ("kept = []\n" + LOOP + "    pair = [loss, step]\n    kept += pair[:1]\n", "kept += pair[:1]"),
    "and part of a list": ("kept = []\n" + LOOP + "    pair = [loss, step]\n    kept = kept + pair[:1]\n", "kept = kept + pair[:1]"),
    "sorted": ("best = []\n" + LOOP + "    best = sorted(best + [(step, loss)])\n", "best = sorted(best + [(step, loss)])"),
    "replaced field": ("from typing import NamedTuple\nclass State(NamedTuple):\n    step: int = 0\n    seen: tuple = ()\nstate = State()\n" +
                       LOOP + "    state = state._replace(step=step, seen=state.seen + (loss,))\n",
                       "state = state._replace(step=step, seen=state.seen + (loss,))"),
    "nested": ("books = {}\n" + LOOP + "    books.setdefault(step % 7, {})[step] = loss; step += 1\n",
               "books.setdefault(step % 7, {})[step] = loss; step += 1"),
    "index of an index": ("books = {'a': {}}\n" + LOOP + "    books['a'][step] = loss\n", "books['a'][step] = loss"),
    "global by name": (LOOP + "    globals()[f'loss_{step}'] = loss\n", "globals()[f'loss_{step}'] = loss"),
    "conditional": ("losses = []\n" + LOOP + "    losses.append(loss) if step > 1 else None\n",
                    "losses.append(loss) if step > 1 else None"),
    "and": ("losses = []\n" + LOOP + "    step and losses.append(loss)\n", "step and losses.append(loss)"),
    "list of a dataclass": ("from dataclasses import dataclass, field\n@dataclass\nclass Results:\n    out: list = field(default_factory=list)\n"
                            "    def update(self, x):\n        self.out = self.out + [x]\nresults = Results()\n" + LOOP +
                            "    results.update(out)\n", "self.out = self.out + [x]"),
    # callbacks and log records that a library keeps with their arguments
    "exit stack": ("from contextlib import ExitStack\nwith ExitStack() as stack:\n    for step in range(1000):\n        out = Tensor()\n"
                   "        stack.callback(print, step, out)\n", "stack.callback(print, step, out)"),
    "exit stack of an object": ("import contextlib\nclass Run:\n    def __init__(self):\n        self.stack = contextlib.ExitStack()\n"
                                "    def step(self):\n        out = Tensor()\n        self.stack.callback(print, out)\nrun = Run()\n"
                                "for step in range(1000): run.step()\n", "self.stack.callback(print, out)"),
    "at exit": ("import atexit\nfor step in range(1000):\n    out = Tensor()\n    atexit.register(id, out)\n", "atexit.register(id, out)"),
    "log records": ("import logging, logging.handlers\nlog = logging.getLogger('a')\nlog.setLevel(10)\n"
                    "log.addHandler(logging.handlers.MemoryHandler(100000, flushLevel=50))\nfor step in range(1000):\n    out = Tensor()\n"
                    "    log.debug('%s %s', step, out)\n", "log.debug('%s %s', step, out)"),
    "own handler": ("import logging\nclass Keep(logging.Handler):\n    records = []\n    def emit(self, record):\n        self.records.append(record)\n"
                    "log = logging.getLogger('a')\nlog.setLevel(10)\nlog.addHandler(Keep())\nfor step in range(1000):\n    out = Tensor()\n"
                    "    log.info('%s', out)\n", "log.info('%s', out)"),
    # an attribute whose name is not in the source
    "any attribute": ("class Meter2:\n    def __init__(self):\n        self.loss = []\n    def log(self, **values):\n        for name, value in values.items():\n"
                      "            getattr(self, name).append(value)\nmeter2 = Meter2()\n" + LOOP + "    meter2.log(loss=loss)\n",
                      "getattr(self, name).append(value)"),
    # an object that is a hook (activation recorders for probing)
    "hook object": ("class Recorder:\n    def __init__(self, net):\n        self.seen = []\n        net.register_forward_hook(self)\n"
                    "    def __call__(self, module, inputs, output):\n        self.seen.append(output)\nrecorder = Recorder(model)\n"
                    "for step in range(1000):\n    model(batch())\n", "self.seen.append(output)"),
    "any attribute by vars": ("clip = Buffer()\nfor step in range(1000):\n    out = Tensor()\n    vars(clip)[f'frame_{step}'] = out\n",
                              "vars(clip)[f'frame_{step}'] = out"),
    "sorted": ("def outputs():\n    for step in range(1000):\n        yield Tensor()\ndone = sorted(outputs(), key=id)\n", "done = sorted(outputs(), key=id)"),
    "newest item": ("class Run:\n    def __init__(self):\n        self.history = []\n    def begin(self):\n        self.history.append(Buffer())\nrun = Run()\n"
                    "for step in range(1000):\n    run.begin()\n    out = Tensor()\n    run.history[-1].extra = out\n", "run.history[-1].extra = out"),
    "newest row": ("rows = []\nfor step in range(1000):\n    rows.append({'step': step})\n    rows[-1]['out'] = Tensor()\n", "rows[-1]['out'] = Tensor()"),
    # a pointer that the callee fills
    "out parameter": ("import ctypes\nrt = ctypes.CDLL('libcudart.so.13')\ndef alloc(n):\n    p = ctypes.c_void_p()\n"
                      "    if rt.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n)): raise MemoryError(n)\n    return p\n"
                      "pool = {}\nfor step in range(1000):\n    pool[step] = alloc(1 << 20)\n", "pool[step] = alloc(1 << 20)"),
}
SHAPES |= {
    # roytseng-tw/Detectron.pytorch 22: meters that a logger finds by name
    "meters by name": ("class Logger:\n    def __init__(self, *names):\n        for name in names:\n            setattr(self, name, Meter())\n"
                       "    def update(self, n, **values):\n        for name, value in values.items():\n            getattr(self, name).update(value)\n"
                       "metrics = Logger('loss')\n" + LOOP + "    metrics.update(4, loss=loss)\n", "self.sum += value"),
    # attributes that the first call makes: of a thread, an object, a function
    "thread attribute": ("import threading\nlocal = threading.local()\ndef embed():\n    if not hasattr(local, 'vectors'):\n        local.vectors = []\n"
                         "    vector = model(batch())\n    local.vectors.append(vector)\nfor step in range(1000):\n    embed()\n", "local.vectors.append(vector)"),
    "late attribute": ("class Engine:\n    def run(self):\n        if not hasattr(self, 'outputs'):\n            self.outputs = []\n        out = model(batch())\n"
                       "        self.outputs.append(out)\nengine = Engine()\nfor step in range(1000):\n    engine.run()\n", "self.outputs.append(out)"),
    "function attribute": ("def embed():\n    if not hasattr(embed, 'seen'):\n        embed.seen = []\n    out = model(batch())\n    embed.seen.append(out)\n"
                           "for step in range(1000):\n    embed()\n", "embed.seen.append(out)"),
    "attribute with a default": ("class Engine: pass\nengine = Engine()\ndef run():\n    kept = getattr(engine, 'kept', None)\n    if kept is None:\n"
                                 "        kept = engine.kept = []\n    out = model(batch())\n    kept.append(out)\nfor step in range(1000):\n    run()\n",
                                 "kept.append(out)"),
    # losses that a function adds up while it asks for them
    "reduce": ("import operator\nfrom functools import reduce\ndef loss():\n    return criterion(model(batch()))\ndef error():\n"
               "    return reduce(operator.add, (loss() for step in range(1000)))\nerror()\n",
               "return reduce(operator.add, (loss() for step in range(1000)))"),
    "sum of a generator": ("def loss():\n    return criterion(model(batch()))\ntotal = sum(loss() for step in range(1000)) / 1000\n",
                           "total = sum(loss() for step in range(1000)) / 1000"),
}
LIKENESSES = {
    "late attribute that is replaced": "[setattr(meter, 'parts', []) if hasattr(meter, 'parts') else 0]; meter.parts = [loss]",
    "sum of numbers": "total = sum(x.item() for x in [loss])",
    "sum of one step": "total = sum(x for x in [loss])",
    # pytorch/pytorch 13613, discuss.pytorch.org 27253, lambeq 251: what is stored is a number or a copy on the host
    "item": "total += loss.item()",
    "host": "logged.append(loss.detach().cpu().numpy())",
    "float": "logged.append(float(loss))",
    "list": "logged.append(loss.tolist())",
    "replaced": "last = loss",
    "replaced attribute": "meter.last = loss",
    "constant key": "state['loss'] = loss",
    "anew each step": "parts = []; parts.append(loss)",
    "bounded": "window.append(loss)",
    "of a row": "logged.append({'step': step, 'loss': loss.item()})",
    "inside a call": "logged.append(round(float(loss + 1), 3))",
    "copied by a function": "logged.append(to_cpu(loss))",
    "sum of others": "total += (step == 3)",
    "detached average": "total = 0.9 * total + 0.1 * loss.detach().item()",
    "object of a library": "scaler = Scaler(); scaler.record(loss)",
    "number for a library": "writer.add_scalar('loss', loss.item(), step)",
    # a library turns it into text or into a number
    "printed by a library": "writer.print(step, loss)",
    "logged by a library": "writer.info('%s', loss)",
    "text of a bar": "writer.set_description_str(f'{loss}')",
    "scalar for a library": "writer.add_scalar('loss', loss, step)",
    "shape": "logged.append(loss.shape if hasattr(loss, 'shape') else 0)",
    "joined with a copy": "x = batch(); logged.append(x.cpu()); state = {}",
    "cut": "logged = (logged + [loss])[-3:]",
    # callbacks and log records that keep nothing of it
    "callback of an own class": "own.callback(step, loss)",
    "stack of this step": "stack = contextlib.ExitStack(); stack.callback(print, loss); stack.close()",
    "number for a stack": "stack2.callback(print, loss.item())",
    "registered elsewhere": "own.register(loss)",
    "number at exit": "atexit.register(id, loss.item())",
    "number in a record": "log.info('%s', loss.item())",
    "text in a record": "log.info(f'{step}')",
    "shape in a record": "log.info('%s', str(step))",
    "number for an attribute": "getattr(meter, 'items', []).append(loss.item())",
    "of an attribute": "getattr(loss, 'item')()",
    "last of a fixed list": "rows = state.setdefault('rows', [Buffer()]); rows[-1].extra = loss",
    "number of the newest item": "logged.append(Buffer()); logged[-1].extra = loss.item()",
    "item of a new list": "rows = []; rows.append(Buffer()); rows[-1].extra = loss",
    "popped item": "logged.append(Buffer()); logged[-1].extra = loss; logged.pop()",
    "newest of a few": "window.append(Buffer()); window[-1].extra = loss",
    "number by vars": "vars(meter)[f'loss_{step}'] = loss.item()",
    "vars of a new object": "fresh = Meter(); vars(fresh)[f'loss_{step}'] = loss",
    "default of an attribute": "x = getattr(meter, 'loss', None)",
    "sorted and cut": "logged = sorted(logged + [loss], key=id)[-3:]",
    "conditional number": "logged.append(loss.item()) if step else None",
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_statement_that_keeps_it(recording, name):
    body, text = SHAPES[name]
    report, found = leaks(recording, body)
    assert report["oom"] or report["growth"]
    assert found == {text}


@pytest.mark.parametrize("name", LIKENESSES)
def test_a_statement_that_keeps_nothing_is_not_named(recording, name):
    """Neither if the statement that keeps the memory cannot be found, nor next to it."""
    start = ("from collections import deque\ntotal, logged, state, meter, window, hidden = 0, [], {}, Meter(), deque(maxlen=4), []\n"
             "from torch.metric import Scaler\nwriter = Scaler()\nimport atexit, contextlib\nstack2 = contextlib.ExitStack()\n"
             "class Own:\n    def callback(self, *values): pass\n    register = callback\nown = Own()\n"
             "def to_cpu(x):\n    return 1\n"
             "def keep(x):\n    __import__('ctypes').pythonapi.Py_IncRef(__import__('ctypes').py_object(x))\n")
    if "log." in LIKENESSES[name]:
        start += ("import logging.handlers\nlog = logging.getLogger('a')\nlog.setLevel(10)\n"
                  "log.addHandler(logging.handlers.MemoryHandler(1 << 20))\n")
    _, found = leaks(recording, start + LOOP + f"    {LIKENESSES[name]}\n    keep(loss)\n")
    assert found == set()
    recording.database.unlink()
    _, found = leaks(recording, start + LOOP + f"    {LIKENESSES[name]}\n    hidden.append(loss)\n")
    assert found == {"hidden.append(loss)"}


@pytest.mark.parametrize("body", [
    # copies of what is kept elsewhere
    "class Library:\n    @staticmethod\n    def stack(parts): return 0\nrows = []\nfor step in range(1000):\n"
    "    row = [Tensor() for part in range(4)]\n    rows.append(Library.stack([part for part in row]))\n    keep(row)\n",
    "class Part(Tensor):\n    def clone(self): return 0\nrows = {}\nfor step in range(1000):\n    part = Part()\n"
    "    rows[step] = (step, part.clone())\n    keep(part)\n",
    # the next token of an output, whose cache is kept elsewhere
    "class Out(Tensor):\n    def argmax(self, axis): return 0\ntokens = []\nfor step in range(1000):\n    out = Out()\n    keep(out)\n"
    "    ids = out.argmax(-1)\n    tokens.append(ids)\n",
    # the usual way to repeat a loader without keeping its batches
    "import itertools\ndef cycle(source):\n    while True:\n        yield from source()\ndef batches():\n    yield Tensor()\n"
    "for x in cycle(batches):\n    keep(x)\n",
    # a collate function: the comprehension makes nothing
    "def collate(items):\n    return cat([item for item in items])\nfor step in range(1000):\n    out = collate([None, None])\n    keep(out)\n",
    # begun anew every few steps, which another statement's store outlives
    "total = Tensor(bytes=512)\nfor step in range(1000):\n    out = Tensor()\n    if step % 4 == 0:\n        total = out\n    else:\n"
    "        total = total + out\n    keep(out)\n",
    "total = Tensor(bytes=512)\nfor step in range(1000):\n    out, done = Tensor(), step & 3 > 2\n    if done:\n        total = out\n"
    "    else:\n        total = total + out\n    keep(out)\n",
    "total = Tensor(bytes=512)\nfor step in range(1000):\n    out = Tensor()\n    if total.size > 9:\n        total = out\n"
    "    else:\n        total = total + out\n    keep(out)\n",
    "x = Tensor(bytes=512)\nfor step in range(1000):\n    out, max = Tensor(), None\n    if max is None: x = out\n    x = x + out\n"
    "    keep(out)\n",
    # the sum's brackets do not make a tuple
    "def add(a, b): return 0\nx = 0\nfor step in range(1000):\n    out = Tensor()\n    x = x + (add(out, 1))\n    keep(out)\n",
    # made anew before it is stored
    "outs = []\nfor step in range(1000):\n    out = 1\n    outs.append(out)\n    out = Tensor()\n    keep(out)\n",
    # a node of this step's own tree
    "class Node: pass\nfor step in range(1000):\n    root = Node()\n    root.children = [[]]\n    node = root.children[0]\n"
    "    out = Tensor()\n    node.append(out)\n    keep(out)\n",
    # the learning rate of an optimizer
    "rates = {}\nfor step in range(1000):\n    optimizer = Optimizer()\n    optimizer.groups = [{'lr': 1}]\n    rates[step] = optimizer.groups[0]['lr']\n"
    "    optimizer.step()\n    keep(optimizer)\n",
    # the results of constructed objects are numbers; the objects themselves are stored elsewhere
    "class Report:\n    def __init__(self, n):\n        self.n, self.table = n, Tensor()\n        keep(self)\n    def mean(self):\n        return self.n\n"
    "means, last = [], {}\nfor step in range(1000):\n    means.append(Report(step).mean())\n",
    # each replaces the one before
    "class State:\n    def __init__(self):\n        self.value = Tensor()\n        keep(self.value)\nlatest = {}\nfor step in range(1000):\n"
    "    state = State()\n    latest['state'] = state\n",
    # an object's number is stored, and the object is not
    "class Track:\n    ids = []\n    def __init__(self, n):\n        self.n, self.value = n, Tensor()\n        Track.ids.append(self.n)\n        keep(self)\n"
    "for step in range(1000):\n    track = Track(step)\n",
    # the model keeps its features, and the caller what the model returns
    "class Net2(Module):\n    def forward(self, x):\n        self.features = Tensor()\n        keep(self.features)\n        return 1\nnet, outs = Net2(), []\n"
    "for step in range(1000):\n    outs.append(net(step))\n",
    # no dict(), no set()
    "def predict(xs):\n    for x in xs:\n        keep(x)\npredict(Tensor() for n in range(1000))\n",
    "def reset(xs):\n    for x in xs:\n        keep(x)\nreset(Tensor() for n in range(1000))\n",
    # the hook of a bound function is removed; a hook of what the step made
    "from functools import partial\nclass Handle:\n    def remove(self): pass\nclass Net2:\n    def register_forward_hook(self, hook):\n"
    "        return Handle()\nnet = Net2()\nfor step in range(1000):\n    image = Tensor()\n    keep(image)\n"
    "    handle = net.register_forward_hook(partial(print, image))\n    handle.remove()\n",
    "class Part(Tensor):\n    def register_hook(self, hook): self.hook = 1\nfor step in range(1000):\n    part = Part()\n    keep(part)\n"
    "    part.register_hook(lambda grad, x=part: grad)\n",
    # the function stores another object than the one that it returns
    "class Session:\n    names = []\n    def configure(self):\n        optimizer, name = Optimizer(), 'sgd'\n        self.names.append(name)\n"
    "        keep(optimizer)\n        return optimizer, name\n    def restart(self):\n        optimizer, name = self.configure()\n"
    "        for step in range(2):\n            optimizer.step()\nsession = Session()\nfor cycle in range(1000):\n    session.restart()\n",
    # the hook is removed
    "class Handle:\n    def remove(self): pass\nclass Net2:\n    def register_forward_hook(self, hook):\n        return Handle()\nnet = Net2()\n"
    "for step in range(1000):\n    image = Tensor()\n    keep(image)\n    def save(x):\n        return image\n    handle = net.register_forward_hook(save)\n"
    "    handle.remove()\n",
    # its constructor takes the object before, and keeps a number of it
    "class Node:\n    def __init__(self, state, before):\n        self.state, self.n = state, before.n + 1 if before else 0\n        keep(state)\n"
    "node = None\nfor step in range(1000):\n    h = Tensor()\n    node = Node(h, node)\n",
    # neither of the two functions of that name stores it
    "class A:\n    def log(self, x): self.n = 1\nclass B:\n    def log(self, x): self.last = x\ndef train(loggers):\n    for step in range(1000):\n"
    "        out = Tensor()\n        keep(out)\n        for logger in loggers:\n            logger.log(out)\ntrain([A(), B()])\n",
    # made anew for each object, which is not stored
    "class Batch:\n    def __init__(self):\n        self.parts = []\n        for part in range(2):\n            self.parts.append(part)\n        keep(Tensor())\n"
    "for step in range(1000):\n    batch = Batch()\n",
    # a method that no library calls
    "from collections import UserList\nclass Log(UserList):\n    def record(self, value):\n        self.data.append(value)\n"
    "for step in range(1000):\n    out = Tensor()\n    keep(out)\n",
], ids=["stacked", "cloned", "token", "own cycle", "collate", "begun anew", "begun when done", "begun when large", "another name", "brackets", "made before", "own tree", "rate", "result", "replaced", "number", "module", "predict", "reset", "bound and removed", "of a part", "another object", "removed", "not linked", "loggers", "anew", "no library"])
def test_look_alikes_that_keep_nothing(recording, body):
    _, found = leaks(recording, "def keep(x):\n    __import__('ctypes').pythonapi.Py_IncRef(__import__('ctypes').py_object(x))\n" + body)
    assert found == set()


def test_the_store_of_an_imported_module(recording):
    """It is in no call path: no memory is allocated in it."""
    (recording.folder / "lib").mkdir()
    (recording.folder / "lib" / "replay.py").write_text("class Memory:\n    def __init__(self):\n        self.items = []\n"
                                                        "    def push(self, *args):\n        self.items.append(args)\n")
    report = run(recording, "from lib.replay import Memory\nmemory = Memory()\nfor step in range(1000):\n    out = Tensor()\n    memory.push(step, out)\n")
    holder, = report["oom"][0]["holders"]
    assert holder["file"].endswith("/lib/replay.py") and holder["text"] == "self.items.append(args)"


HOOKS = ("class Taps:\n    def __init__(self, net):\n        self.seen, self.latest = [], {}\n        net.register_forward_hook(HOOK)\n"
         "    def save(self, module, inputs, output):\n        STORE\n    def tap(self, name):\n        def hook(module, inputs, output):\n            STORE\n"
         "        return hook\n")


@pytest.mark.parametrize("hook, store, user, kept", [
    # towhee-io/examples 258, Mikubill/sketch2img 7: a class of another file registers the hooks
    ("self.save", "self.seen.append(output)", "taps = Taps(model)", True),
    ("self.tap('x')", "self.seen.append(output)", "taps = Taps(model)", True),
    ("self.tap('x')", "self.latest.setdefault('x', []).append(output)", "taps = Taps(model)", True),
    ("lambda m, i, o: self.seen.append(o)", "pass", "taps = Taps(model)", True),
    ("self.save", "self.seen += [output]", "taps = [Taps(model)]", True),
    ("self.save", "self.seen.append(output)", "taps = None", False),
    ("self.save", "self.seen.append(output.tolist())", "taps = Taps(model)", False),
    ("self.save", "self.latest['x'] = output", "taps = Taps(model)", False),
    ("self.save", "self.last = output", "taps = Taps(model)", False),
    ("self.tap('x')", "self.seen.append(output.item())", "taps = Taps(model)", False)])
def test_hooks_of_an_imported_module(recording, hook, store, user, kept):
    (recording.folder / "taps.py").write_text(HOOKS.replace("HOOK", hook).replace("STORE", store))
    report = run(recording, "from taps import Taps\ndef keep(x):\n    __import__('ctypes').pythonapi.Py_IncRef(__import__('ctypes').py_object(x))\n"
                 f"{user}\nfor step in range(1000):\n    out = model(batch())\n" + ("" if kept else "    keep(out)\n"))
    holders = [h for part in report["oom"] + report["growth"] for h in part["holders"]]
    assert (report["oom"] or report["growth"]) and {h["file"].rsplit("/", 1)[1] for h in holders} == ({"taps.py"} if kept else set()), holders


@pytest.mark.parametrize("method, maker, store, text", [
    # oxwhirl/pymarl 73, Metta-AI/metta 1139: a replay buffer of the program's own, whose method has the name of a list's
    ("insert", "deque(maxlen=size)", "self.items.append(x)", "lower its maxlen"), ("append", "deque(maxlen=size)", "self.items.append(x)", "lower its maxlen"),
    ("add", "[]", "self.items.append(x)", "drop the reference"), ("extend", "[]", "self.items.append(x)", "drop the reference"),
    ("append", "deque(maxlen=9)", "self.items.append(x)", None), ("insert", "[]", "self.last = x", None), ("append", "[]", "self.items.append(x.item())", None),
    ("add", "[]", "self.items[:] = [x]", None)])
def test_a_buffer_of_another_file(recording, method, maker, store, text):
    (recording.folder / "replay.py").write_text("from collections import deque\nclass Replay:\n    def __init__(self, size):\n        self.items = " + maker +
                                                f"\n    def {method}(self, x):\n        {store}\n")
    report = run(recording, "from replay import Replay\ndef keep(x):\n    __import__('ctypes').pythonapi.Py_IncRef(__import__('ctypes').py_object(x))\n"
                 "buffer, other = Replay(5000), 1\nfor step in range(1000):\n    out = Tensor()\n" + f"    buffer.{method}(out)\n" + ("" if text else "    keep(out)\n"))
    oom = report["oom"][0]
    assert [h["text"] for h in oom["holders"]] == ([store] if text else []) and (not text or text in str(oom["advice"])), (oom["holders"], oom["advice"])


KEEP = "def keep(x):\n    __import__('ctypes').pythonapi.Py_IncRef(__import__('ctypes').py_object(x))\n"
LOSS = KEEP + "def loss():\n    out = model(batch())\n    keep(out)\n    return criterion(out)\n"
TAPS = ("class Taps:\n    def __init__(self, net):\n        self.seen = []\n        net.register_forward_hook(self.save)\n"
        "    def save(self, module, inputs, output):\n        self.seen.append(output)\n")
TAPPED = "for step in range(1000):\n    out = model(batch())\n    keep(out)\n"
COUNT = "class Log:\n    def __init__(self):\n        self.n = 0\n    def append(self, x):\n        self.n += 1\ndef make():\n    return Log()\n"
ONCE = "class Run:\n    def run(self):\n        if not hasattr(self, 'outs'):\n            self.outs = []\n        out = model(batch())\n        self.outs.append(out)\n        keep(out)\n"
METERS = ("class Mean:\n    def __init__(self): self.sum = 0\n    def update(self, x): self.sum += x.item()\nclass Rows:\n    def __init__(self): self.rows = []\n"
          "    def update(self, x): self.rows.append(x)\nclass Log:\n    def __init__(self):\n        self.loss = Mean()\n    def log(self, **values):\n"
          "        for name, value in values.items():\n            getattr(self, name).update(value)\nlog = Log()\n")
FAILS = "def work(n):\n    out = model(batch())\n    raise ValueError('bad', n)\nbad = []\nfor step in range(1000):\n    try:\n        work(step)\n    except ValueError as e:\n        keep(e)\n        "


@pytest.mark.parametrize("other, body", [
    # hooks of another file: of a class with a longer name, removed, emptied by the program, of another class
    (TAPS, "from other import Taps\nclass MyTaps:\n    def __init__(self, net): pass\ntaps = MyTaps(model)\n" + TAPPED),
    (TAPS.replace("        net.reg", "        self.handle = net.reg") + "    def close(self):\n        self.handle.remove()\n",
     "from other import Taps\nclass Handle:\n    def remove(self): model.hooks = ()\nold = Module.register_forward_hook\ndef register(self, hook):\n"
     "    old(self, hook)\n    return Handle()\nModule.register_forward_hook = register\ntaps = Taps(model)\ntaps.close()\n" + TAPPED),
    (TAPS + "class Cam(Taps): pass\n", "from other import Cam\nclass Own(Cam): pass\n" + TAPPED),
    (TAPS, "from other import Taps\ntaps = Taps(model)\n" + TAPPED + "    taps.seen.clear()\n"),
    (TAPS + "    def reset(self):\n        self.seen = []\n", "from other import Taps\ntaps = Taps(model)\n" + TAPPED + "    taps.reset()\n"),
    (TAPS.replace("Taps", "Count").replace("append(output)", "append(1)") + TAPS, "from other import Count, Taps\ncount = Count(model)\n" + TAPPED),
    # a method of the name of a list's, whose class does not show; windows
    (COUNT, "from other import make\nlog = make()\n" + LOOP + "    log.append(loss)\n    keep(loss)\n"),
    (COUNT, "import other as o\nlog = o.Log()\n" + LOOP + "    log.append(loss)\n    keep(loss)\n"),
    (COUNT, "from other import Log\ndef train(log):\n    for step in range(1000):\n        out = model(batch())\n        log.append(out)\n        keep(out)\ntrain(Log())\n"),
    ("class Ring:\n    def __init__(self):\n        self.items, self.at = [None] * 8, 0\n    def append(self, x):\n        self.items[self.at % 8] = x\n        self.at += 1\n",
     "from other import Ring\nring = Ring()\n" + LOOP + "    ring.append(loss)\n    keep(loss)\n"),
    ("class Last:\n    def __init__(self):\n        self.items = []\n    def append(self, x):\n        self.items.append(x)\n        if len(self.items) > 8:\n            self.items.pop(0)\n",
     "from other import Last\nlast = Last()\n" + LOOP + "    last.append(loss)\n    keep(loss)\n"),
    # attributes that the first call makes: of an object of each step, deleted, or never made
    ("", ONCE + "for step in range(1000):\n    Run().run()\n"),
    ("", ONCE + "        if len(self.outs) > 4:\n            del self.outs\nrun = Run()\nfor step in range(1000):\n    run.run()\n"),
    ("", "class Run: pass\ndef once(run):\n    if not hasattr(run, 'outs'):\n        run.outs = []\n    out = model(batch())\n    run.outs.append(out)\n    keep(out)\n"
     "for step in range(1000):\n    run = Run()\n    once(run)\n"),
    ("", "class Run: pass\nrun = Run()\n" + LOOP + "    history = getattr(run, 'history', [])\n    history.append(loss)\n    keep(loss)\n"),
    ("", "class Run: pass\nrun = Run()\ndef log(loss):\n    history = getattr(run, 'history', None)\n    if history is None:\n        history = []\n    history.append(loss)\n" +
     LOOP + "    log(loss)\n    keep(loss)\n"),
    # sum() of numbers, a count, a method called sum
    *[("", "def error():\n    out = model(batch())\n    loss = criterion(out)\n    keep(loss)\n    return loss.item()\n" + total + "\n")
      for total in ("total = sum(error() for step in range(1000))", "total = [error() for step in range(1000)]")],
    ("", LOSS + "total = sum(float(loss()) for step in range(1000))\n"), ("", LOSS + "total = sum(1 for step in range(1000) if loss())\n"),
    ("", LOSS + "from functools import reduce\nlast = reduce(lambda a, b: b, (loss() for step in range(1000)))\n"),
    ("", LOSS + "class Log:\n    def sum(self, values):\n        for value in values: pass\ntotal = Log().sum(loss() for step in range(1000))\n"),
    # methods of a class that the program does not use
    ("", METERS + LOOP + "    log.log(loss=loss)\n    keep(loss)\n"),
    ("", METERS.replace("self.loss = Mean()", "self.loss = __import__('collections').defaultdict(Mean)['loss']") + LOOP + "    log.log(loss=loss)\n    keep(loss)\n"),
    ("", METERS.replace("self.sum += x.item()", "self.last = x") + LOOP + "    log.log(loss=loss)\n    keep(loss)\n"),
    # the text of an exception
    *[("", FAILS + store + "\n") for store in ("bad.append('%s' % e)", "bad.append('{}'.format(e))", "bad.append((step, e.args[0]))",
                                               "bad.append(e.__traceback__.tb_lineno)", "bad.append(f'{step}: {e}')", "bad.append(type(e).__name__)")]])
def test_look_alikes_of_holders_in_other_places(recording, other, body):
    (recording.folder / "other.py").write_text(other)
    report, found = leaks(recording, KEEP + body)
    assert (report["oom"] or report["growth"]) and found == set()


@pytest.mark.parametrize("other, body", [(TAPS, "from other import Taps\nclass Cam(Taps): pass\ncam = Cam(model)\n"),
                                         (TAPS + "class Cam(Taps): pass\n", "from other import Cam\ncam = Cam(model)\n"),
                                         (TAPS, "import other\nclass Base(other.Taps): pass\nclass Cam(Base): pass\ncam = Cam(model)\n")])
def test_a_hook_that_a_class_inherits(recording, other, body):
    (recording.folder / "other.py").write_text(other)
    report = run(recording, KEEP + body + TAPPED)
    assert {h["text"] for part in report["oom"] + report["growth"] for h in part["holders"]} == {"self.seen.append(output)"}


def test_a_store_of_another_file_that_was_passed(recording):
    (recording.folder / "other.py").write_text(COUNT.replace("self.n = 0", "self.rows = []").replace("self.n += 1", "self.rows.append(x)"))
    report = run(recording, "from other import Log\ndef train(log):\n    for step in range(1000):\n        out = model(batch())\n        log.append(out)\ntrain(Log())\n")
    assert {h["text"] for part in report["oom"] + report["growth"] for h in part["holders"]} == {"self.rows.append(x)"}


FRAMES = "class Frames:\n    def __init__(self):\n        self.items = []\n    def push(self, x):\n        self.items.append(Tensor())\n"


@pytest.mark.parametrize("reads, advised", [("x = [frames.items[-8:], Tensor()]", "the program's recorded files read no others (del self.items[:-8])"),
                                            ("x = [sum(map(id, frames.items)), Tensor()]", None), ("x = Tensor()", None),
                                            ("x = [frames.items[-8:], frames.items[step // 2], Tensor()]", None)])
def test_the_last_items_that_another_file_reads(recording, reads, advised):
    (recording.folder / "frames.py").write_text("from torch._tensor import Tensor\n" + FRAMES)
    report = run(recording, f"from frames import Frames\nframes = Frames()\nfor step in range(1000):\n    frames.push(step)\n    {reads}\n")
    text = str(report["oom"][0]["advice"])
    if advised:  # also read by a file that is imported and never allocates
        (recording.folder / "plot.py").write_text("def draw(frames):\n    return sum(map(id, frames.items))\n")
        recording.database.unlink()
        other = run(recording, "import plot\nfrom frames import Frames\nframes = Frames()\nfor step in range(1000):\n    frames.push(step)\n"
                    f"    {reads}\nplot.draw(frames)\n")
        assert "keep only the last" not in str(other["oom"][0]["advice"])
    assert (advised in text) if advised else "keep only the last" not in text, text


def test_what_each_step_makes_anew_is_not_named(recording):
    """Micro-batches: their losses are stored until the optimizer's step."""
    _, found = leaks(recording, "def keep(x):\n    __import__('ctypes').pythonapi.Py_IncRef(__import__('ctypes').py_object(x))\nclass Optimizer:\n    def step(self): pass\noptimizer = Optimizer()\n"
                     "for step in range(1000):\n    losses = []\n    for micro in range(4):\n        loss = criterion(model(batch()))\n"
                     "        losses.append(loss)\n        keep(loss)\n    optimizer.step()\n")
    assert found == set()


def test_values_of_a_dictionary(recording):
    _, found = leaks(recording, "log = {}\nfor step in range(1000):\n    losses = {'a': criterion(model(batch()))}\n"
                     "    for name, value in losses.items():\n        log.setdefault(name, []).append(value)\n")
    assert found == {"log.setdefault(name, []).append(value)"}


def test_two_that_are_equally_likely_are_both_named(recording):
    _, found = leaks(recording, "a, b = [], []\n" + LOOP + "    a.append(loss)\n    b.append(out)\n")
    assert found == {"a.append(loss)", "b.append(out)"}
    recording.database.unlink()
    _, found = leaks(recording, "a, b, c = [], [], []\n" + LOOP + "    a.append(loss)\n    b.append(out)\n    c.append(out)\n")
    assert found == set()


def test_the_advice_names_the_guess_and_the_verdict_does_not(recording):
    report, _ = leaks(recording, "predictions = []\nfor step in range(1000):\n    p = Tensor()\n    predictions.append(p)\n")
    oom, = report["oom"]
    assert "predictions.append(p)" not in oom["verdict"]
    assert any("guess" in a and "`predictions.append(p)`" in a for a in oom["advice"]), oom["advice"]


@pytest.mark.parametrize("lines", ["a.append(loss)\n", "a = a + loss\n", "    " * 40 + "a\n", "((((((((\n", "'''\n",
                                   "x = [" + "a, " * 1000 + "]\n", "a[i] = loss; b += a\n", "try:\n", "def f(x): return x\n",
                                   "for a in b: for c in d: c.append(a)\n", "lambda: (yield)\n", "= = = :\n", "\\\n"])
def test_source_that_is_not_a_program(recording, lines):
    """The source text comes from the recording and may be any text at any line."""
    body = "losses = []\n" + LOOP + "    losses.append(loss)\n"
    leaks(recording, body)
    text = ("for loss in a:\n" + "    " + lines) + lines * min(20000, (250 << 10) // len(lines))
    with sqlite3.connect(recording.database) as db:
        db.execute("update source set text = ?", (text,))
    db.close()
    began = time.monotonic()
    for holder in [h for oom in recording.report()["oom"] for h in oom["holders"]]:
        assert len(holder["text"]) < 200
    assert SAN or time.monotonic() - began < 20  # a sanitizer makes it several times slower


def test_what_is_computed_from_memory_does_not_keep_it(recording):
    _, found = leaks(recording, "class F:\n    mse_loss = staticmethod(lambda x: Tensor(bytes=4096))\nsums, kept = [], []\nfor step in range(1000):\n"
                     "    out = Tensor()\n    loss = F.mse_loss(out)\n    sums.append(loss)\n    kept.append(out)\n")
    assert found == {"sums.append(loss)", "kept.append(out)"}  # each for its own line
    assert [h["text"] for h in recording.report()["oom"][0]["holders"]] == ["kept.append(out)"]


def test_a_run_that_lives_names_what_keeps_growth(recording):
    recording.python(HEAD + "kept = []\nfor step in range(300):\n    out = Tensor()\n    kept.append(out)\n", PYTHONPATH=prepare(recording))
    for words in (["report"], ["report", "--only", "growth"], ["leaks"]):
        text = " ".join(recording.gpuspy(*words, recording.database).stdout.split())
        line = (HEAD + "kept").count("\n") + 4
        assert f"kept by script.py:{line} " in text and "kept.append(out)" in text and "(guess)" in text, text


KEPT = "def keep(x):\n    __import__('ctypes').pythonapi.Py_IncRef(__import__('ctypes').py_object(x))\n"
EACH = "for step in range(1000):\n    out = Tensor()\n"
EMIT = ("import logging\nclass Keep(logging.Handler):\n    records = []\n    def emit(self, record):\n        self.records.append(record)\n"
        "log = logging.getLogger('a')\nlog.addHandler(Keep())\n")
ENDS = {
    "closed": "from contextlib import ExitStack\nstack = ExitStack()\n" + EACH + "    stack.callback(print, out)\n    stack.close()\n",
    "popped": "from contextlib import ExitStack\nstack = ExitStack()\n" + EACH + "    stack.callback(id, out)\n    stack.pop_all().close()\n",
    "unregistered": "import atexit\n" + EACH + "    atexit.register(id, out)\n    atexit.unregister(id)\n",
    "own object": "from contextlib import ExitStack\ndef other():\n    with ExitStack() as stack: pass\nclass Own:\n    def callback(self, *x): pass\n"
                  "def run():\n    stack = Own()\n    for step in range(1000):\n        out = Tensor()\n        stack.callback(out)\n        keep(out)\nrun()\n",
    "of one step": "from contextlib import ExitStack\nfor step in range(1000):\n    with ExitStack() as stack:\n        out = Tensor()\n"
                   "        stack.callback(id, out)\n        keep(out)\n",
    "below the level": EMIT + "log.setLevel(logging.INFO)\n" + EACH + "    log.debug('%s', out)\n",
    "default level": EMIT + EACH + "    log.info('%s', out)\n",
    "last records": EMIT.replace("[]", "__import__('collections').deque(maxlen=5)") + "log.setLevel(10)\n" + EACH + "    log.info('%s', out)\n",
    "text of records": EMIT.replace("        self", "        record = self.format(record)\n        self") + "log.setLevel(10)\n" + EACH + "    log.info('%s', out)\n",
    "other records": "import logging\nlog, rows = logging.getLogger('a'), []\nlog.setLevel(10)\n" + EACH +
                     "    record = {'step': step}\n    rows.append(record)\n    log.info('%s', out)\n",
    "few records": "import logging, logging.handlers\nlog = logging.getLogger('a')\nlog.setLevel(10)\n"
                   "log.addHandler(logging.handlers.MemoryHandler(10, target=logging.NullHandler()))\n" + EACH + "    log.info('%s', out)\n",
    "default of an attribute": "meter = Buffer()\n" + EACH + "    getattr(meter, 'items', []).append(out)\n",
    "attribute of a new object": EACH + "    b = Buffer()\n    b.items = []\n    getattr(b, 'items').append(out)\n",
    "emptied attribute": "class M:\n    def __init__(self): self.loss = []\n    def log(self, n, x):\n        getattr(self, n).append(x)\n"
                         "    def clear(self, n):\n        getattr(self, n).clear()\nm = M()\n" + EACH + "    m.log('loss', out)\n    m.clear('loss')\n",
    "attribute made anew": "class M:\n    def log(self, n, x):\n        setattr(self, n, [])\n        getattr(self, n).append(x)\nm = M()\n" + EACH + "    m.log('loss', out)\n",
    "sorted numbers": "def scores():\n    for step in range(1000):\n        out = Tensor()\n        keep(out)\n        yield out.item()\ndone = sorted(scores())\n",
    "hook object that keeps a number": "class Recorder:\n    seen = []\n    def __call__(self, module, inputs, output):\n"
                                       "        self.seen.append(output.item())\nmodel.register_forward_hook(Recorder())\n"
                                       "for step in range(1000):\n    out = model(batch())\n    keep(out)\n",
    "hook objects that keep one item each": "class Recorder:\n    out = {}\n    def __init__(self, name): self.name = name\n"
                                            "    def __call__(self, module, inputs, output):\n        self.out[self.name] = output\n"
                                            "model.register_forward_hook(Recorder('a'))\nfor step in range(1000):\n    out = model(batch())\n    keep(out)\n",
    "hook object that is reset": "class Recorder:\n    def __init__(self): self.seen = []\n    def reset(self): self.seen = []\n"
                                 "    def __call__(self, module, inputs, output):\n        self.seen.append(output)\nrecorder = Recorder()\n"
                                 "model.register_forward_hook(recorder)\nfor step in range(1000):\n    recorder.reset()\n    out = model(batch())\n    keep(out)\n",
    "newest item of an epoch": "rows = []\nfor epoch in range(2):\n    rows.append(Buffer())\n    for step in range(1000):\n        out = Tensor()\n"
                               "        keep(out)\n        rows[-1].extra = out\n",
    "newest of the last": "rows = []\n" + EACH + "    rows.append(Buffer())\n    rows[-1].extra = out\n    rows = rows[-4:]\n",
    "newest that is dropped": "rows = []\n" + EACH + "    rows.append(Buffer())\n    rows[-1].extra = out\n    rows[-1].extra = None\n",
    "object that is not registered as a hook": "class Recorder:\n    seen = []\n    def __call__(self, module, inputs, output):\n        self.seen.append(output)\n"
                              "recorder = Recorder()\nmodel.register_forward_hook(id and (lambda *a: None))\n"
                              "for step in range(1000):\n    out = model(batch())\n    keep(out)\n",
    "bounded attribute": "from collections import deque\nclass M:\n    def __init__(self): self.loss = deque(maxlen=3)\n    def log(self, n, x):\n"
                         "        getattr(self, n).append(x)\nm = M()\n" + EACH + "    m.log('loss', out)\n",
}


@pytest.mark.parametrize("name", ENDS)
def test_keepers_of_a_library_that_end_or_keep_nothing(recording, name):
    keep = "" if "keep(out)" in ENDS[name] else "    keep(out)\n"
    _, found = leaks(recording, KEPT + ENDS[name] + keep)
    assert found == set()


HIST = "class T:\n    def __init__(self):\n        self.hist = []\n    def step(self):\n        out = Tensor()\n        self.hist.append(out)\n        x = self.hist[-1]\n"
LATEST = {  # what the file reads of the list, and whether it needs its last items only
    "last": (EACH + "    hist.append(out)\n    x = hist[-1]\n", "del hist[:-1]"),
    "guard": (EACH + "    hist.append(out)\n    if len(hist) >= 5: x = hist[-4:]\n", "del hist[:-5]"),
    "more than": (EACH + "    hist.append(out)\n    if len(hist) > 5: x = hist[-5:]\n", "del hist[:-6]"),
    "its own append": (EACH.replace("()", "(*hist[-1:])") + "    hist.append(cat([0] + hist) or out)\nprint(hist[-1])\n", None),
    "f-string": (EACH + "    hist.append(out)\n    x = hist[-1]\n    y = f'{step} {sum(map(id, hist))}'\n", None),
    "mean": (EACH + "    hist.append(out)\n    x = hist[-1]\n    mean = step / len(hist)\n", None),
    "bound": (EACH + "    hist.append(out)\n    x = hist[-1]\n    if len(hist) > 900: break\n", None),
    "exported": ("__all__ = ['hist']\n" + EACH + "    hist.append(out)\n    x = hist[-1]\n", None),
    "by its name": (EACH + "    hist.append(out)\n    x = hist[-1]\nprint(len(globals()['hist']))\n", None),
    "written": (EACH + "    hist.append(out)\n    hist[-1] = out\n", None),
    "chain": ("hist.append(Tensor())\n" + EACH.replace("()", "(hist[-1])") + "    hist.append(out)\n", None),
    "another object": (HIST + "t = T()\nfor step in range(1000): t.step()\nprint(sum(len(str(x)) for x in t.hist))\n", None),
    "base": ("class Base:\n    def total(self): return sum(map(id, self.hist))\n" + HIST.replace("T:", "T(Base):") +
             "t = T()\nfor step in range(1000): t.step()\n", None),
    "all attributes": (HIST + "t = T()\nfor step in range(1000): t.step()\nprint(vars(t))\n", None),
}


@pytest.mark.parametrize("name", LATEST)
def test_when_the_last_items_suffice(recording, name):
    body, advised = LATEST[name]
    text = str([oom["advice"] for oom in run(recording, "hist = []\n" + body)["oom"]])
    assert (f"({advised})" in text) if advised else "keep only the last" not in text, text


# What the source empties after backward() is a window that has not ended: the container, and the line that empties it.
FILL = "for step in range(1000):\n    out = model(batch())\n    bank.append(criterion(out))\n    if step % 900 == 899:\n        loss = sum(bank)\n"
PPO = ("class Memory:\n    def __init__(self):\n        self.clear()\n    def clear(self):\n        self.scores = []\n"
       "memory = Memory()\ndef update():\n    loss = sum(memory.scores)\n    loss.backward()\n")
RUN = "for step in range(1000):\n    memory.scores.append(criterion(model(batch())))\n    if step % 900 == 899:\n        update()\n"
WINDOWS = {
    "clear": ("bank = []\n" + FILL + "        loss.backward()\n        bank.clear()\n", "bank.clear()"),
    "anew": ("bank = []\n" + FILL + "        loss.backward()\n        bank = []\n", "bank = []"),
    "del": ("bank = []\n" + FILL + "        loss.backward()\n        del bank[:]\n", "del bank[:]"),
    "sum": ("total = 0\nfor step in range(1000):\n    total = total + criterion(model(batch()))\n    if step % 900 == 899:\n"
            "        total.backward()\n        total = 0\n", "total = 0"),
    "function": ("bank = []\ndef learn(bank):\n    loss = sum(bank)\n    loss.backward()\n" +
                 FILL.replace("loss = sum(bank)", "learn(bank)") + "        bank.clear()\n", "bank.clear()"),
    "method": (PPO + RUN + "        memory.clear()\n", "memory.clear()"),
    "of the update": (PPO + "    memory.clear()\n" + RUN, "memory.clear()"),
    "next iteration": ("for episode in range(9):\n    bank = []\n    for step in range(900):\n        bank.append(criterion(model(batch())))\n"
                       "    loss = sum(bank)\n    loss.backward()\n", "bank = []"),
    # what the loss was computed from is emptied before its backward pass: huggingface/trl, cleanrl
    "before": ("bank = []\n" + FILL + "        bank.clear()\n        loss.backward()\n", "bank.clear()"),
    "drained": ("from collections import deque\nbank = deque()\n" + FILL.replace("loss = sum(bank)", "loss = 0") +
                "        while bank:\n            loss = loss + bank.popleft()\n        loss.backward()\n", "while bank:"),
    "counted": ("bank = []\n" + FILL.replace("loss = sum(bank)", "loss = 0") +
                "        for _ in range(len(bank)):\n            loss = loss + bank.pop(0)\n        loss.backward()\n", "for _ in range(len(bank)):"),
    "while any": ("bank = []\n" + FILL.replace("loss = sum(bank)", "loss = 0") +
                  "        while len(bank) > 0:\n            loss = loss + bank.pop()\n        loss.backward()\n", "while len(bank) > 0:"),
    "lambda": ("class Window:\n    def __init__(self):\n        self.losses = []\n        self.run = lambda: sum(self.losses).backward()\n"
               "    def add(self, loss, step):\n        self.losses.append(loss)\n        if step % 900 == 899:\n            self.run()\n"
               "            self.losses.clear()\nwindow = Window()\nfor step in range(1000):\n    window.add(criterion(model(batch())), step)\n",
               "self.losses.clear()"),
    # look-alikes: of another list, after a backward pass of something else, retained, only bounded, in another branch
    "another drained": ("bank, other = [], []\n" + FILL + "        while other:\n            other.pop()\n        loss.backward()\n", None),
    "bounded": ("bank = []\n" + FILL + "        loss.backward()\n        while len(bank) > 900:\n            bank.pop(0)\n", None),
    "another branch": ("bank = []\n" + FILL + "        loss.backward()\n    elif step > 2000:\n        bank.clear()\n", None),
    "lambda of another": ("bank = []\nclass Show:\n    def __init__(self):\n        self.run = lambda: print(len(bank))\n"
                          "class Learn:\n    def __init__(self):\n        self.rerun = lambda: sum(bank).backward()\nshow = Show()\n" +
                          FILL + "        show.run()\n        bank.clear()\n", None),
    "another": ("bank, other = [], []\n" + FILL + "        loss.backward()\n        other.clear()\n", None),
    "only shown": ("bank = []\n" + FILL.replace("loss = sum(bank)", "print(len(bank))") + "        out.backward()\n        bank.clear()\n", None),
    "retained": ("bank = []\n" + FILL + "        loss.backward(retain_graph=True)\n        bank.clear()\n", None),
    "each step": ("bank = []\nfor epoch in range(2):\n    for step in range(900):\n        bank.append(criterion(model(batch())))\n"
                  "        loss = sum(bank)\n        loss.backward()\n    bank.clear()\n", None),
    # an evaluation, whose loss has the name of the training's
    "name of another loss": ("for epoch in range(2):\n    bank = []\n    for step in range(30):\n        loss = criterion(model(batch()))\n"
                             "        loss.backward()\n    for step in range(900):\n        bank.append(criterion(model(batch())))\n"
                             "    loss = sum(bank)\n    print(loss)\n", None),
    # what is emptied before it is filled
    "begun anew": ("bank = []\nfor step in range(1000):\n    bank.append(criterion(model(batch())))\n    if step % 900 == 899:\n"
                   "        loss = 0\n        if bank:\n            loss = loss + sum(bank)\n        loss.backward()\n        bank.clear()\n", None),
    "kept": ("bank, kept = [], []\n" + FILL.replace("    bank", "    kept.append(out)\n    bank") +
             "        loss.backward()\n        bank.clear()\n", None),
}


BEFORE = {"before", "drained", "counted", "while any"}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_that_has_not_ended(recording, name):
    body, empties = WINDOWS[name]
    (oom,) = run(recording, body, SIMCUDA_CONTEXT="100MiB")["oom"]
    text = oom["verdict"] + str(oom["advice"])
    if not empties:
        assert "empties" not in text, text
        return
    line = max(i for i, code in enumerate((HEAD + body).split("\n"), 1) if code.strip() == empties)
    assert f":{line}" in text and "empties" in text, text
    assert ("before which" in text) == (name in BEFORE), text
