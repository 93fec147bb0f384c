"""Seccomp filters that end the process at a system call that only gpuspy makes: it does not make it."""
import re
import subprocess

import pytest

from conftest import BUILD, ROOT, sanitized
from test_lives import other_lines

FILTERED = BUILD / "programs" / "filtered"


def numbers():
    """The calls that interpose/filter.c tries, and their numbers on this machine."""
    defined = subprocess.run(["gcc", "-dM", "-E", "-include", "sys/syscall.h", "-x", "c", "/dev/null"], text=True,
                             capture_output=True, check=True).stdout
    number = {name: int(value) for name, value in re.findall(r"#define __NR_(\w+) (\d+)", defined)}
    source = (ROOT / "interpose/filter.c").read_text()
    tried = re.findall(r"^    (?:CALL|PRINTS|OPTIONAL)\((?:GS_\w+, )?(\w+)", source, re.M)
    assert len(tried) > 40
    return {name: number[name] for name in tried if name in number}


def run(recording, when, number, bare=False):
    for path in recording.folder.glob("run*"):
        path.unlink()
    return recording.run(FILTERED, when, str(number), check=False, **({"LD_PRELOAD": ""} if bare else {}))


@sanitized("a sanitizer's runtime makes system calls of its own")
@pytest.mark.parametrize("when", ["before", "after", "all", "idle"])
def test_a_filter_never_ends_a_process_because_of_the_recorder(recording, when):
    different = {}
    for name, number in numbers().items():
        bare = run(recording, when, number, bare=True)
        if bare.returncode != 7:
            continue  # the program makes that call itself
        done = run(recording, when, number)
        if (done.returncode, done.stdout, other_lines(done.stderr)) != (7, bare.stdout, other_lines(bare.stderr)):
            different[name] = (done.returncode, done.stderr)
    assert different == {}


@sanitized("a sanitizer's runtime makes system calls of its own")
def test_what_is_recorded_under_a_filter(recording):
    number = numbers()

    def recorded():
        return recording.sql("select count(*) from allocation")

    assert run(recording, "before", number["setpriority"]).returncode == 7 and recorded() == [(55,)]
    assert run(recording, "before", number["close_range"]).returncode == 7 and recorded() == [(55,)]
    assert "not recording: a seccomp filter ends the process at fdatasync" in run(recording, "before", number["fdatasync"]).stderr
    assert not list(recording.folder.glob("run*"))
    for when in "alone", "inherited":
        assert run(recording, when, number["clone"]).returncode == 7 and recorded() == [(50,)]
    for when in "after", "all":
        done = run(recording, when, number["fdatasync"])
        assert "recording stopped here: a seccomp filter ends the process at fdatasync" in done.stderr
        assert recorded() == [(50,)] and recording.sql("select complete from process") == [(1,)]
        assert recording.sql("select value from meta where key = 'stopped'") == [("filter",)]
        assert "because a seccomp filter or Syscall" in recording.gpuspy("report", "run.db").stdout


@sanitized("a sanitizer's runtime makes system calls of its own")
def test_a_program_that_allows_itself_few_calls_and_never_uses_cuda(recording):
    """As sandboxes of decoders do: what gpuspy does when the program ends must be among them."""
    source = """#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
    struct sock_fprog program = {5, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
    puts("decoded");
    return 3;
}
"""
    (recording.folder / "few.c").write_text(source)
    subprocess.run(["gcc", "-o", "few", "few.c"], cwd=recording.folder, check=True)
    done = recording.run("./few", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "decoded\n", "")


DISPATCH = """#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int cudaMalloc(void **p, size_t n), cudaFree(void *p);
static char selector;
static int caught;
static unsigned long low, bytes;
static void catch(int number) { caught++; }
static int find(struct dl_phdr_info *info, size_t size, void *unused)
{
    for (int i = 0; strstr(info->dlpi_name, "/libc.so") && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X)
            low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, bytes = info->dlpi_phdr[i].p_memsz;
    return 0;
}
static void call(void)
{
    void *p;
    for (int i = 0; i < 50; i++) if (!cudaMalloc(&p, 100)) cudaFree(p);
}
int main(int n, char **words)
{
    signal(SIGSYS, catch);
    dl_iterate_phdr(find, 0);
    call(); /* the runtime starts: its system calls are its own */
    %s
    selector = 1;
    for (int i = 0; i < 50; i++) call();
    printf("caught %%d\\n", caught);
    fflush(stdout);
    return 3;
}
"""


@sanitized("a sanitizer's runtime makes system calls of its own")
@pytest.mark.parametrize("call", ["prctl(59, 1, low, bytes, &selector);", "syscall(SYS_prctl, 59, 1, low, bytes, &selector);"])
@pytest.mark.parametrize("begin", ["", "call(); "])
def test_a_program_that_handles_system_calls_itself(recording, call, begin):
    (recording.folder / "own.c").write_text((DISPATCH % call).replace("    call(); /*", f"    {begin}/*"))
    subprocess.run(["gcc", "-w", "-o", "own", "own.c", f"-L{BUILD}/sim", BUILD / "sim/libcudart.so.13"], cwd=recording.folder, check=True)
    bare = recording.run(recording.folder / "own", check=False, LD_PRELOAD="", LD_LIBRARY_PATH=BUILD / "torture/raw")
    done = recording.run(recording.folder / "own", check=False, LD_LIBRARY_PATH=BUILD / "torture/raw")
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout) == (3, "caught 0\n"), done
    assert ("recording stopped here" if begin else "not recording") + ": the program handles system calls itself" in done.stderr
    assert recording.database.exists() == bool(begin)
