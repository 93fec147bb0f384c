/* The spool's control file and its segment: creation, owner, states, limits, refusals, and the files that are removed
 * after processes that were killed. */
#include "tests/unit/spools.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Segments that no process has attached, and this process's own. */
static int segments(void)
{
    struct shmid_ds ds;
    int n = 0;
    for (int i = 0; i < 4096; i++)
        n += shmctl(i, SHM_STAT, &ds) >= 0 && ds.shm_segsz == GS_SPOOL_BYTES &&
             (ds.shm_nattch == 0 || ds.shm_cpid == getpid());
    return n;
}

static void creation(void **state)
{
    struct gs_spool s, other;
    struct stat st;
    const int before = segments();
    const mode_t mask = umask(0);
    errno = 4711;
    create(&s, path);
    umask(mask);
    assert_int_equal(errno, 4711);
    assert_true(s.shmid >= 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_true(st.st_size < 4096);
    assert_int_equal(gs_spool_create(&other, path, "", "", 0, 0), EEXIST);
    assert_int_equal(errno, 4711);
    assert_int_equal(gs_spool_create(&other, "/nonexistent/x", "", "", 0, 0), ENOENT);
    assert_int_equal(segments(), before + 1); /* the failed attempt left none */
    char command[400];
    snprintf(command, sizeof command, "test $(ls '%s' | wc -l) = 1", folder);
    assert_int_equal(system(command), 0); /* no temporary file stays */
    snprintf(command, sizeof command, "! ls -l /proc/%d/fd | grep -q '%s'", (int)getpid(), folder);
    assert_int_equal(system(command), 0); /* and no descriptor; stdout may be spool.log */
    gs_spool_unlink(&s, path);
    assert_int_not_equal(access(path, F_OK), 0);
    struct gs_writer w; /* the memory still exists */
    gs_writer_open(&w, &s);
    assert_true(put(&w, 1, 1, 32));
    gs_spool_close(&s);
    assert_int_equal(segments(), before);
}

/* If another recording's file has the name by now, it is not removed. */
static void unlinking_another(void **state)
{
    struct gs_spool s, other;
    create(&s, path);
    unlink(path);
    create(&other, path);
    gs_spool_unlink(&s, path);
    assert_int_equal(access(path, F_OK), 0);
    gs_spool_close(&s);
    drop(&other, path);
}

static void edit(size_t at, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), n);
    close(fd);
}

#define EDIT(member, ...)                                                    \
    edit(offsetof(struct gs_spool_control, member),                          \
         &(__typeof__(((struct gs_spool_control *)0)->member)){__VA_ARGS__}, \
         sizeof((struct gs_spool_control *)0)->member)

static void header(void **state)
{
    struct gs_spool s, t;
    char error[200];
    create(&s, path);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), 0);
    assert_string_equal(t.header->run_id, "run");
    assert_string_equal(t.header->command, "command");
    assert_int_equal(t.header->pid, getpid());
    assert_int_equal(t.header->start_mono_ns, 1);
    assert_int_equal(t.header->start_real_ns, 2);
    gs_spool_close(&t);
    s.header->chunks++;
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    s.header->chunks--;
    s.header->cookie[1]++; /* the id belongs to another segment now */
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    s.header->cookie[1]--;
    EDIT(version, 5);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    assert_non_null(strstr(error, "version 5"));
    EDIT(version, GS_SPOOL_VERSION);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), 0);
    gs_spool_close(&t);
    int foreign = shmget(IPC_PRIVATE, 4096, 0600 | IPC_CREAT);
    EDIT(shmid, foreign);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    shmctl(foreign, IPC_RMID, NULL);
    foreign = shmget(IPC_PRIVATE, GS_SPOOL_BYTES, 0600 | IPC_CREAT);
    EDIT(shmid, foreign);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    shmctl(foreign, IPC_RMID, NULL);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    EDIT(shmid, -7);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EIDRM);
    EDIT(shmid, s.shmid);
    for (size_t i = 0; i < 256; i++) edit(offsetof(struct gs_spool_control, host) + i, "x", 1);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    EDIT(magic[0], 'x');
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    assert_string_equal(error, "not a gpuspy spool");
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    assert_int_equal(gs_spool_open(&t, folder, error, sizeof error), EINVAL);
    assert_int_equal(gs_spool_open(&t, "/nonexistent", error, sizeof error), ENOENT);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(gs_spool_open(&t, path, error, sizeof error), EINVAL);
    drop(&s, "/nonexistent");
    unlink(path);
}

static enum gs_spool_state state_now(void)
{
    struct gs_spool_control c;
    char error[200];
    assert_int_equal(gs_spool_read_control(path, &c, error, sizeof error), 0);
    return gs_spool_state(&c);
}

/* Runs fn in a child that then waits for a signal to exit; returns its pid. */
static pid_t child(void (*fn)(void), int *leave)
{
    int ready[2], go[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(go[1]);
        fn();
        if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) < 0) _exit(1);
        _exit(0);
    }
    close(ready[1]); /* a child that fails ends the pipe */
    close(go[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *leave = go[1];
    return pid;
}

static void let_go(pid_t pid, int leave)
{
    close(leave);
    waitpid(pid, NULL, 0);
}

/* A pipe that ends when a child has executed another program. */
static int executes[2] = {-1, -1};
static void wait_for_exec(void)
{
    char byte;
    close(executes[1]);
    if (read(executes[0], &byte, 1) != 0) _exit(9);
    close(executes[0]);
}
static bool has_main_thread(pid_t pid)
{
    char name[64], line[256] = "";
    snprintf(name, sizeof name, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(name, "r");
    if (!f || !fgets(line, sizeof line, f)) _exit(9);
    fclose(f);
    return strrchr(line, ')')[2] != 'Z';
}

static struct gs_spool of_child;
static void create_in_child(void)
{
    if (gs_spool_create(&of_child, path, "run", "", 0, 0)) _exit(9);
}
static void create_and_fork(void)
{
    create_in_child();
    if (fork() == 0) { /* outlives its parent, and has the segment attached */
        close(executes[1]);
        sleep(3);
        _exit(0);
    }
}
static void create_and_exec(void)
{
    if (pipe2(executes, O_CLOEXEC)) _exit(9);
    if (fork() == 0) {
        create_in_child();
        execlp("sleep", "sleep", "2", (char *)NULL);
        _exit(9);
    }
    wait_for_exec();
}
/* The process continues as another program, and a child of it has the segment attached. */
static void create_fork_and_exec(void)
{
    if (pipe2(executes, O_CLOEXEC)) _exit(9);
    if (fork() == 0) {
        create_and_fork();
        execlp("sleep", "sleep", "2", (char *)NULL);
        _exit(9);
    }
    wait_for_exec();
}
static void *stay(void *unused)
{
    sleep(2);
    return unused;
}
/* A main thread that has ended is a zombie until the others have ended. */
static void create_and_leave_by_thread(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        create_in_child();
        pthread_create(&thread, NULL, stay, NULL);
        pthread_exit(NULL);
    }
    while (has_main_thread(pid)) usleep(1000);
}

static void remove_left(void)
{
    struct gs_spool s;
    char error[200];
    if (gs_spool_open(&s, path, error, sizeof error)) fail_msg("%s", error);
    drop(&s, path);
}

static void owner(void **state)
{
    int leave;
    ev_skip_without_own_stat();
    assert_int_equal(gs_spool_owner(path), 0); /* there is none */
    pid_t pid = child(create_in_child, &leave);
    assert_int_equal(gs_spool_owner(path), pid);
    let_go(pid, leave);
    assert_int_equal(gs_spool_owner(path), 0);
    assert_int_equal(state_now(), GS_SPOOL_LEFT);
    remove_left();
    pid = child(create_and_fork, &leave);
    assert_int_equal(gs_spool_owner(path), pid);
    let_go(pid, leave);
    assert_int_equal(state_now(), GS_SPOOL_LEFT);
    remove_left();
    void (*const exec[])(void) = {create_and_exec, create_fork_and_exec};
    for (int i = 0; i < 2; i++) { /* the process continues as another program */
        pid = child(exec[i], &leave);
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(state_now(), GS_SPOOL_LEFT);
        let_go(pid, leave);
        remove_left();
    }
    pid = child(create_and_leave_by_thread, &leave);
    assert_int_equal(state_now(), GS_SPOOL_RECORDING);
    let_go(pid, leave);
    while (state_now() == GS_SPOOL_RECORDING) usleep(100000);
    remove_left();
}

/* Like a container's process that the OOM killer ended and that no process reaps. */
static void a_zombie(void **state)
{
    pid_t pid = fork();
    if (pid == 0) {
        create_in_child();
        kill(getpid(), SIGKILL);
    }
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    while (state_now() == GS_SPOOL_RECORDING) usleep(1000); /* who reads /proc/PID keeps its memory for a moment */
    assert_int_equal(state_now(), GS_SPOOL_LEFT);
    assert_int_equal(gs_spool_owner(path), 0);
    waitpid(pid, NULL, 0);
    assert_int_equal(state_now(), GS_SPOOL_LEFT);
    edit(offsetof(struct gs_spool_control, boot_id), "", 1); /* what a recorder without /proc does not know */
    edit(offsetof(struct gs_spool_control, process_start_ticks), (uint64_t[]){0}, 8);
    edit(offsetof(struct gs_spool_control, pid_namespace), (uint64_t[]){0}, 8);
    edit(offsetof(struct gs_spool_control, ipc_namespace), (uint64_t[]){0}, 8);
    assert_int_equal(state_now(), GS_SPOOL_LEFT);
    remove_left();
}

static void gone_segment(void **state)
{
    int leave;
    ev_skip_without_own_stat();
    pid_t pid = child(create_in_child, &leave);
    struct gs_spool_control c;
    char error[200];
    assert_int_equal(gs_spool_read_control(path, &c, error, sizeof error), 0);
    shmctl(c.shmid, IPC_RMID, NULL);
    assert_int_equal(state_now(), GS_SPOOL_RECORDING); /* it still has it attached */
    let_go(pid, leave);
    assert_int_equal(state_now(), GS_SPOOL_LOST);
    const uint64_t other = c.ipc_namespace + 1;
    edit(offsetof(struct gs_spool_control, ipc_namespace), &other, 8);
    assert_int_equal(state_now(), GS_SPOOL_ELSEWHERE);
    edit(offsetof(struct gs_spool_control, boot_id), "another boot", 13);
    assert_int_equal(state_now(), GS_SPOOL_LOST);
    edit(offsetof(struct gs_spool_control, host), "another host", 13);
    assert_int_equal(state_now(), GS_SPOOL_ELSEWHERE);
    unlink(path);
}

static void a_forked_child(void **state)
{
    struct gs_spool s;
    struct gs_writer w;
    ev_skip_without_own_stat();
    create(&s, path);
    gs_writer_open(&w, &s);
    assert_true(put(&w, 1, 1, 32));
    pid_t pid = fork();
    if (pid == 0) {
        gs_spool_close(&s);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    assert_true(put(&w, 2, 2, 32));
    pid = fork();
    if (pid == 0) /* still this process's, seen by another process */
        _exit(gs_spool_owner(path) == (uint32_t)getppid() ? 0 : 1);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    drop(&s, path);
}

/* ---------------------------------------------------------------- limits and refusals */

/* Limits on file sizes do not apply to shared memory. Only the control file needs some bytes. */
static void limit_on_file_size(void **state)
{
    ev_skip_without_own_stat();
    for (rlim_t bytes = 0; bytes <= 8192; bytes += 8192) {
        pid_t pid = fork();
        if (pid == 0) { /* SIGXFSZ would kill it */
            struct rlimit limit = {bytes, bytes};
            struct gs_spool s;
            setrlimit(RLIMIT_FSIZE, &limit);
            int error = gs_spool_create(&s, path, "", "", 0, 0);
            if (!error) gs_spool_unlink(&s, path);
            _exit(error == (bytes ? 0 : EFBIG) ? 0 : 1);
        }
        int status;
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

/* On a full file system: the control file cannot be written, and no other file is needed. */
static void full_disk(void **state)
{
    char small[320], where[340], filler[340];
    static char block[4096];
    snprintf(small, sizeof small, "%s/small", folder);
    snprintf(where, sizeof where, "%s/run.db.spool", small);
    snprintf(filler, sizeof filler, "%s/filler", small);
    assert_int_equal(mkdir(small, 0777), 0);
    if (mount("none", small, "tmpfs", 0, "size=64k")) {
        print_message("(no right to mount a small disk: %s)\n", strerror(errno));
        rmdir(small);
        skip();
    }
    struct gs_spool s;
    struct gs_writer w;
    create(&s, where);
    int fd = open(filler, O_WRONLY | O_CREAT, 0600);
    while (write(fd, block, sizeof block) > 0) continue;
    close(fd);
    gs_writer_open(&w, &s);
    for (uint32_t i = 0; i < 1000; i++) /* 8 MiB */
        assert_true(put(&w, i, i, 8192));
    drop(&s, where);
    fd = open(filler, O_WRONLY | O_APPEND, 0600);
    while (write(fd, block, sizeof block) > 0) continue;
    close(fd);
    assert_int_equal(gs_spool_create(&s, where, "", "", 0, 0), ENOSPC);
    assert_int_not_equal(access(where, F_OK), 0);
    assert_int_equal(umount(small), 0);
    rmdir(small);
}

/* Without shmget, as under a seccomp filter: private memory, and a message states that. */
static void refused(void **state)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shmget, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        struct gs_writer w;
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(2);
        create_in_child();
        gs_writer_open(&w, &of_child);
        if (of_child.private_error != EPERM || of_child.shmid >= 0 || !put(&w, 1, 1, 32)) _exit(3);
        if (fork() == 0) _exit(gs_spool_owner(path) == (uint32_t)getppid() ? 0 : 1);
        int status;
        wait(&status);
        _exit(status ? 4 : 0);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status == 2 << 8) {
        print_message("(no seccomp filters here, as under qemu-user)\n");
        skip();
    }
    assert_int_equal(status, 0);
    assert_int_equal(state_now(), GS_SPOOL_LOST);
    unlink(path);
}

/* Segments of dead processes, if old enough and beyond the limits: none of another user's, none in use. */
static void orphans(void **state)
{
    enum { ALL = GS_SPOOL_ORPHANS + 8 };
    if (unshare(CLONE_NEWIPC)) /* in its own namespace, because others may also leave some */
        skip();
    struct gs_spool s;
    struct shmid_ds ds;
    for (int i = 0; i < ALL; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            create_in_child();
            unlink(path);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
    const int before = segments();
    assert_true(before >= ALL);
    create(&s, path); /* they are too young: a process may be about to complete them */
    assert_int_equal(segments(), before + 1);
    drop(&s, path);
    gs_segment_remove_orphans(-10);
    assert_int_equal(segments(), GS_SPOOL_ORPHANS);
    create(&s, path); /* in use: it stays, even if the limit is reached */
    gs_segment_remove_orphans(-10);
    assert_int_equal(segments(), GS_SPOOL_ORPHANS + 1);
    drop(&s, path);
    for (int i = 0; i < 4096; i++) { /* as if all chunks of each were used */
        int shmid = shmctl(i, SHM_STAT, &ds);
        struct gs_spool_header *h = shmid >= 0 && ds.shm_segsz == GS_SPOOL_BYTES ? shmat(shmid, NULL, 0) : (void *)-1;
        if (h == (void *)-1) continue;
        atomic_store(&h->next_seq, 1 << 20);
        shmdt(h);
    }
    gs_segment_remove_orphans(-10);
    assert_int_equal(segments(), GS_SPOOL_ORPHAN_BYTES / GS_SPOOL_BYTES);
    for (int i = 0; i < 4096; i++) {
        int shmid = shmctl(i, SHM_STAT, &ds);
        if (shmid >= 0 && ds.shm_segsz == GS_SPOOL_BYTES && !ds.shm_nattch) shmctl(shmid, IPC_RMID, NULL);
    }
}

int main(void)
{
    (void)unshare(CLONE_NEWIPC); /* orphans() removes segments, and other tests may run at the same time */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creation),          cmocka_unit_test(header),
        cmocka_unit_test(unlinking_another), cmocka_unit_test(owner),
        cmocka_unit_test(a_zombie),          cmocka_unit_test(gone_segment),
        cmocka_unit_test(a_forked_child),    cmocka_unit_test(limit_on_file_size),
        cmocka_unit_test(full_disk),         cmocka_unit_test(refused),
        cmocka_unit_test(orphans),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
