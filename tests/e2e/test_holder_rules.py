"""Rules about holders that are read from the source: for each, what it must find and what only looks like it."""
import pytest
from test_holder import HEAD, KEEP, TAPS, prepare, run

MODHOOK = ("def hook(m, i, o):\n    if not hasattr(m, 'acts'):\n        m.acts = []\n    STORE\nmodel.register_forward_hook(hook)\nfor step in range(1000):\n    out = model(batch())\n")
TM = "import torchmetrics\nfrom torchmetrics import MeanMetric, Accuracy\n"
PAIRED = "from torch.func import gather, step2\n"
NONE: set[str] = set()
CASES = {
    # name: (other.py, body, expected texts)
    # --- list that a hook gives a module
    "neg hook replaces": ("", KEEP + MODHOOK.replace("STORE", "m.acts = [o]; keep(o)"), NONE),
    "neg hook cleared": ("", KEEP + MODHOOK.replace("STORE", "m.acts.append(o); keep(o)") + "    model.acts.clear()\n", NONE),
    "neg hook cleared by loop": ("", KEEP + MODHOOK.replace("STORE", "m.acts.append(o); keep(o)") + "    for m in [model]:\n        m.acts = []\n", NONE),
    "neg hook del": ("", KEEP + MODHOOK.replace("STORE", "m.acts.append(o); keep(o)") + "    del model.acts\n", NONE),
    "neg hook number": ("", KEEP + MODHOOK.replace("STORE", "m.acts.append(o.item()); keep(o)"), NONE),
    "neg hook shape": ("", KEEP + MODHOOK.replace("STORE", "m.acts.append(len([o])); keep(o)"), NONE),
    "neg hook bounded": ("", KEEP + MODHOOK.replace("STORE", "m.acts.append(o); m.acts = m.acts[-4:]; keep(o)"), NONE),
    "neg hook new module": ("", KEEP + "def hook(m, i, o):\n    if not hasattr(m, 'acts'):\n        m.acts = []\n    m.acts.append(o)\n    keep(o)\n"
                            "for step in range(1000):\n    net = Net()\n    net.register_forward_hook(hook)\n    out = net(batch())\n", NONE),
    "pos hook list": ("", MODHOOK.replace("STORE", "m.acts.append(o)"), {"m.acts.append(o)"}),
    # --- hooks of classes that derive
    "neg overrides save": (TAPS, KEEP + "from other import Taps\nclass Cam(Taps):\n    def save(self, module, inputs, output):\n        self.n = 1\ncam = Cam(model)\n"
                           "for step in range(1000):\n    out = model(batch())\n    keep(out)\n", NONE),
    "neg overrides init": (TAPS, KEEP + "from other import Taps\nclass Cam(Taps):\n    def __init__(self, net):\n        self.seen = []\ncam = Cam(model)\n"
                           "for step in range(1000):\n    out = model(batch())\n    keep(out)\n", NONE),
    "neg generic": (TAPS, KEEP + "from other import Taps\nfrom typing import Generic, TypeVar\nT = TypeVar('T')\nclass Cam(Generic[T]):\n    def __init__(self, net): pass\ncam = Cam(model)\n"
                    "for step in range(1000):\n    out = model(batch())\n    keep(out)\n", NONE),
    "neg same name": (TAPS, KEEP + "class Taps:\n    def __init__(self, net): pass\nclass Cam(Taps): pass\ncam = Cam(model)\nimport other\n"
                      "for step in range(1000):\n    out = model(batch())\n    keep(out)\n", NONE),
    "pos super init": (TAPS, "from other import Taps\nclass Cam(Taps):\n    def __init__(self, net):\n        super().__init__(net)\n        self.n = 0\ncam = Cam(model)\n"
                       "for step in range(1000):\n    out = model(batch())\n", {"self.seen.append(output)"}),
    # --- filled only while empty
    "pos filled beside": ("", "tracks, outs = [], []\nfor step in range(1000):\n    out = model(batch())\n    if not tracks:\n        tracks.append(out)\n    outs.append(out)\n", {"outs.append(out)"}),
    "pos not other": ("", "busy, outs = [], []\nfor step in range(1000):\n    out = model(batch())\n    if not busy:\n        outs.append(out)\n", {"outs.append(out)"}),
    "neg filled once": ("", KEEP + "tracks = []\nfor step in range(1000):\n    out = model(batch())\n    keep(out)\n    if not tracks:\n        tracks.append(out)\n", NONE),
    "neg filled once len": ("", KEEP + "tracks = []\nfor step in range(1000):\n    out = model(batch())\n    keep(out)\n    if len(tracks) == 0:\n        tracks.append(out)\n", NONE),
    # --- members of zip and of append
    "pos zip": ("", "class Track:\n    def __init__(self):\n        self.all = []\n    def update(self, x):\n        self.all.append(x)\ntracks = []\nfor i in range(2):\n    tracks.append(Track())\n"
                "for step in range(1000):\n    xs = [model(batch()) for _ in range(2)]\n    for t, x in zip(tracks, xs):\n        t.update(x)\n", {"self.all.append(x)"}),
    "pos zip second": ("", "class Track:\n    def __init__(self):\n        self.all = []\n    def update(self, x):\n        self.all.append(x)\ntracks = [Track(), Track()]\n"
                       "for step in range(1000):\n    xs = [model(batch()) for _ in range(2)]\n    for x, t in zip(xs, tracks):\n        t.update(x)\n", {"self.all.append(x)"}),
    "neg zip latest": ("", KEEP + "class Track:\n    def __init__(self):\n        self.all = []\n    def update(self, x):\n        self.last = x\ntracks = []\nfor i in range(2):\n    tracks.append(Track())\n"
                       "for step in range(1000):\n    xs = [model(batch()) for _ in range(2)]\n    keep(xs)\n    for t, x in zip(tracks, xs):\n        t.update(x)\n", NONE),
    "neg zip number": ("", KEEP + "class Track:\n    def __init__(self):\n        self.all = []\n    def update(self, x):\n        self.all.append(x.item())\ntracks = [Track()]\n"
                       "for step in range(1000):\n    xs = [model(batch())]\n    keep(xs)\n    for t, x in zip(tracks, xs):\n        t.update(x)\n", NONE),
    "neg two classes": ("", KEEP + "class Keep:\n    def __init__(self):\n        self.all = []\n    def update(self, x):\n        self.all.append(x)\nclass Last:\n    def update(self, x):\n        self.last = x\n"
                        "a, b = [Keep()], []\nb.append(Last())\nfor step in range(1000):\n    xs = [model(batch())]\n    keep(xs)\n    for t, x in zip(b, xs):\n        t.update(x)\n", NONE),
    # --- torchmetrics: stub below
    "pos metric called": ("", TM + "metric = Accuracy()\nfor step in range(1000):\n    out = model(batch())\n    metric(out)\n", {"metric(out)"}),
    "neg metric reset": ("", KEEP + TM + "metric = Accuracy()\nfor step in range(1000):\n    out = model(batch())\n    metric(out)\n    metric.reset()\n    keep(out)\n", NONE),
    "neg metric number": ("", KEEP + TM + "metric = Accuracy()\nfor step in range(1000):\n    out = model(batch())\n    metric(out.item())\n    keep(out)\n", NONE),
    "neg metric anew": ("", KEEP + TM + "for step in range(1000):\n    metric = Accuracy()\n    out = model(batch())\n    metric(out)\n    keep(out)\n", NONE),
    "neg own Mean": ("class Mean:\n    def __call__(self, x):\n        self.last = x\n", KEEP + TM + "from other import Mean\nmean = Mean()\nfor step in range(1000):\n    out = model(batch())\n    mean(out)\n    keep(out)\n", NONE),
    "neg own function": ("", KEEP + TM + "def show(x): pass\nfor step in range(1000):\n    out = model(batch())\n    show(out)\n    keep(out)\n", NONE),
    # --- values of a tuple
    "pos gather": ("", PAIRED + "kept = []\nfor step in range(1000):\n    out = model(batch())\n    a, b = gather((out, step))\n    kept.append(a)\n", {"kept.append(a)"}),
    "neg gather": ("", KEEP + PAIRED + "kept = []\nfor step in range(1000):\n    out = model(batch())\n    a, b = gather((step, out))\n    kept.append(a)\n    keep(b)\n", NONE),
    "pos step": ("", PAIRED + "kept = []\nfor step in range(1000):\n    out, loss = step2((batch(), step))\n    kept.append(loss)\n", {"kept.append(loss)"}),
    # --- sizes
    "neg shape": ("", KEEP + "sizes = []\nTensor.shape = (1, 2)\nfor step in range(1000):\n    out = model(batch())\n    sizes.append(out.shape[0])\n    keep(out)\n", NONE),
    "neg size": ("", KEEP + "sizes = []\nTensor.size = lambda self, n: 1\nfor step in range(1000):\n    out = model(batch())\n    sizes.append(out.size(0))\n    keep(out)\n", NONE),
    "neg len": ("", KEEP + "sizes = []\nTensor.__len__ = lambda self: 1\nfor step in range(1000):\n    out = model(batch())\n    sizes.append(len(out))\n    keep(out)\n", NONE),
    "pos shape code": ("", "kept = []\nclass Enc:\n    def run(self):\n        self.shape_code = model(batch())\nenc = Enc()\nfor step in range(1000):\n    enc.run()\n    kept.append(enc.shape_code)\n", {"kept.append(enc.shape_code)"}),
    "pos device out": ("", "kept = []\nclass Enc:\n    def run(self):\n        self.device_out = model(batch())\nenc = Enc()\nfor step in range(1000):\n    enc.run()\n    kept.append(enc.device_out)\n", {"kept.append(enc.device_out)"}),
    "pos size times": ("", "kept = []\nTensor.size = lambda self, n: 1\nTensor.__mul__ = lambda self, n: Tensor(self)\nfor step in range(1000):\n    out = model(batch())\n    kept.append(out * out.size(0))\n", {"kept.append(out * out.size(0))"}),
}
STUBS = {"torchmetrics/__init__.py": "class Metric:\n    def __init__(self): self.all = []\n    def __call__(self, x): self.all.append(x)\n    def reset(self): self.all = []\nclass MeanMetric(Metric): pass\nclass Accuracy(Metric): pass\n",
         "torch/func.py": "def gather(x): return x\ndef step2(xs):\n    from torch._tensor import Tensor\n    return 1, Tensor(xs[0])\n"}


@pytest.mark.parametrize("name", CASES)
def test_what_keeps_it(recording, name):
    other, body, expected = CASES[name]
    (recording.folder / "other.py").write_text(other)
    for path, text in STUBS.items():
        (recording.folder / path).parent.mkdir(exist_ok=True, parents=True)
        (recording.folder / path).write_text(text)
    report = run(recording, body)
    found = {h["text"] for part in report["oom"] + report["growth"] for h in part["holders"]}
    assert report["oom"] or report["growth"]
    assert found == expected


CTX = {
    # a context that is not autograd's: the advice about save_for_backward would be wrong
    "neg ctx of a command": ("class Ctx: pass\ndef command(ctx, step):\n    out = model(batch())\n    ctx.out = out\nctxs = [Ctx() for i in range(1000)]\nfor step in range(1000):\n    command(ctxs[step], step)\n", False),
    "neg ctx of a server": ("class Ctx: pass\nclass Handler:\n    def handle(self, ctx, step):\n        out = model(batch())\n        ctx.state = out\nctxs = [Ctx() for i in range(1000)]\nh = Handler()\nfor step in range(1000):\n    h.handle(ctxs[step], step)\n", False),
    "pos ctx": ("class Function: pass\nclass F(Function):\n    @staticmethod\n    def forward(ctx, x):\n        out = model(x)\n        ctx.out = out\n        return out\nclass Ctx: pass\nctxs = [Ctx() for i in range(1000)]\nfor step in range(1000):\n    F.forward(ctxs[step], batch())\n", True),
}


@pytest.mark.parametrize("name", CTX)
def test_the_advice_about_contexts_of_autograd(recording, name):
    body, advised = CTX[name]
    recording.python(HEAD + body.replace('1000', '6000'), SIMCUDA_MEMORY='4GiB', PYTHONPATH=prepare(recording), check=False)
    report = recording.report()
    assert report["oom"][0]["holders"], report["oom"][0]
    assert ("save_for_backward" in str(report["oom"][0]["advice"])) == advised


AGENT = ("class Agent:\n    def __init__(self):\n        self.a, self.b = [], []\n    def act(self):\n        out = Tensor()\n        self.a.append(out)\n"
         "        self.b.append(out)\n    def update(self):\n        RESET\nagent = Agent()\nfor step in range(1000):\n    agent.act()\n    AFTER\n")
A, B = "self.a.append(out)", "self.b.append(out)"
RENEWED = {
    "one": ("self.b = []", "agent.update()", {A}),
    "tuple": ("self.c, self.b = 0, []", "agent.update()", {A}),
    "list()": ("self.b = list()", "agent.update()", {A}),
    "from outside": ("pass", "agent.a = []", {B}),
    "both": ("self.a, self.b = [], []", "agent.update()", {A, B}),
    "never called": ("self.b = []", "pass", {A, B}),
    "not emptied": ("self.b = self.b", "agent.update()", {A, B}),
    "part": ("self.b = self.b[1:]", "agent.update()", {A, B}),
    "another name": ("self.bb = []", "agent.update()", {A, B}),
    "local": ("b = []", "agent.update()", {A, B}),
}


@pytest.mark.parametrize("name", RENEWED)
def test_the_list_that_is_not_emptied_is_named(recording, name):
    reset, after, expected = RENEWED[name]
    # a reference that gpuspy cannot see makes it a leak, whichever list is emptied
    report = run(recording, KEEP + AGENT.replace("RESET", reset).replace("AFTER", after)
                 .replace("out = Tensor()", "out = Tensor(); keep(out)"))
    assert {h["text"] for oom in report["oom"] for h in oom["holders"]} == expected
