"""Imports PyTorch once and runs many scripts, each in a process forked from this one: the import takes longer than most
of them. `python FOLDER`, with this folder, its PYTHONPATH and a socket, reads one request per line from the socket. The
child leaves this module, and Python runs the requested script as it runs any other."""
import atexit
import gc
import importlib.abc
import importlib.util
import json
import os
import socket
import sys
import weakref

HERE = os.path.dirname(os.path.abspath(__file__))


class Text(importlib.abc.InspectLoader):
    """A program of `python -c`: its frames are in "<string>"."""

    def __init__(self, text):
        self.text = text

    def get_source(self, name):
        return self.text


class MainScript:
    """Python looks for __main__ in this folder; it finds the script, or the text of `-c`."""

    def __init__(self, script, text):
        self.script, self.text = script, text

    def find_spec(self, name, path=None, target=None):
        if name != "__main__":
            return None
        sys.meta_path.remove(self)
        sys.path[0] = os.path.dirname(self.script)
        if self.text is not None:
            return importlib.util.spec_from_loader(name, Text(self.text))
        return importlib.util.spec_from_file_location(name, self.script)


def become(request):
    os.chdir(request["folder"])
    for descriptor, name in enumerate(("stdout", "stderr"), 1):
        output = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, descriptor)
        os.close(output)
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    for name in request["unset"]:
        os.environ.pop(name, None)
    os.environ.update(request["environment"])
    script, *words = request["command"]
    text = words.pop(0) if script == "-c" else None
    sys.argv[:] = [script, *words]
    sys.meta_path.insert(0, MainScript(script, text))


def skip_initial_values():
    """Models on the CPU keep what their memory held: the simulated GPU computes nothing with it, and drawing random numbers
    would take longer than the rest of most scripts."""
    from torch.nn import init
    for name in ("uniform_", "normal_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"):
        scope = {"original": getattr(init, name)}
        text = f"def {name}(tensor, *words, **more): return original(tensor, *words, **more) if tensor.is_cuda else tensor"
        exec(compile(text, init.__file__, "exec"), scope)  # as a frame, a part of PyTorch
        setattr(init, name, scope[name])


class Kept:
    """In place of a module in sys.modules: imports find the module's names, and Python does not clear them at its end."""


def keep_modules(kept):
    """Python ends by clearing every module. In a fork it would copy most of PyTorch's pages for that, which takes longer than
    most scripts. What was imported before the fork stays as it is; the script's own modules and objects are cleared."""
    import ctypes
    modules = {name: module for name, module in sys.modules.items()
               if isinstance(module, type(sys)) and name not in ("__main__", "builtins", "sys")}
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(modules))
    for name, module in modules.items():
        kept[name] = Kept()
        kept[name].__dict__ = module.__dict__
    for finalizer in list(weakref.finalize._registry):  # of torch.library: they unregister operators
        finalizer.atexit = False


def serve(descriptor):
    import ctypes
    kept = {}
    atexit.register(sys.modules.update, kept)  # the first one, which runs last

    import torch._dynamo  # an optimizer's first step imports it
    ctypes.CDLL(os.environ.pop("PREPARED_LEAVE")).leave_early()
    if "SIMCUDA_UNKNOWN" in os.environ:
        skip_initial_values()
    keep_modules(kept)
    gc.collect()
    gc.freeze()  # without it each child copies most pages when it ends
    channel = socket.socket(fileno=descriptor)
    requests = channel.makefile("r")
    for line in requests:
        child = os.fork()
        if child == 0:
            requests.close()
            channel.close()
            return become(json.loads(line))
        _, status = os.waitpid(child, 0)
        channel.sendall(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode() + b"\n")
    os._exit(0)


if "PREPARED_SOCKET" in os.environ:
    serve(int(os.environ.pop("PREPARED_SOCKET")))
