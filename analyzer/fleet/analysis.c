/* Reports on one recording in a child process, so that neither its duration nor its memory affects the process that
 * answers requests. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "analyzer/base/each.h"
#include "analyzer/fleet/fleet.h"
#include "analyzer/step/step.h"

#define SECOND 1000000000ll
/* How long after its start, and after each analysis, a recording is analysed again: sooner while the program is young.
 */
enum { EACH_S = 60, EACH_YOUNG_S = 10, YOUNG_S = 120, REST = 30, CPU_S = 120, WALL_S = 300, ALL_S = 20, NICE = 10 };
#define MEMORY_MAX ((rlim_t)4 << 30)

static bool in_range(int device)
{
    return device >= 0 && device < FLEET_DEVICES;
}

static bool report_has_tensors(const struct result_report *report, int device)
{
    return ANY_IN(g, report->growth, g->device == device && g->layer == RUN_SERIES_TENSOR);
}

static void take_analysis(const struct result_report *report, struct fleet_analysis *a)
{
    a->done = true;
    if (report->steps_n) {
        a->has_steps = true;
        a->steps = report->steps[0]->n;
        a->median_ns = report->steps[0]->median_ns;
    }
    EACH_IN (g, report->growth) {
        const enum run_series_layer layer =
            report_has_tensors(report, g->device) ? RUN_SERIES_TENSOR : RUN_SERIES_DEVICE;
        if (in_range(g->device) && g->by_steps && g->layer == layer) a->device[g->device].growth += g->bytes_per_step;
    }
    EACH_IN (p, report->peaks)
        for (int c = 0; c < RESULT_CATEGORIES_N && in_range(p->device) && p->layer == RUN_SERIES_TENSOR; c++)
            a->device[p->device].by_category[c] = p->by_category.bytes[c];
}

static void run_analysis(const char *database, struct fleet_analysis *a)
{
    char error[1024];
    const struct run_options options = {
        .top = 1 << 16, .alone = true, .questions = REPORT_ASK(STEPS) | REPORT_ASK(GROWTH) | REPORT_ASK(CATEGORIES)};
    struct run *run = run_open(&database, 1, &options, error, sizeof error);
    struct result_report *report = run ? report_build(run, &options, error, sizeof error) : NULL;
    if (report) take_analysis(report, a);
}

/* The child keeps neither the parent's sockets nor its signal handlers, and ends with the parent, however that ends. */
static void be_analyst(const char *database, int out)
{
    const struct rlimit cpu = {CPU_S, CPU_S}, memory = {MEMORY_MAX, MEMORY_MAX};
    struct fleet_analysis a = {.done = false};
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_AS, &memory);
    setpriority(PRIO_PROCESS, 0, NICE);
    for (int fd = 0; fd <= 2; fd++) dup2(null, fd);
    run_analysis(database, &a);
    _exit(write(out, &a, sizeof a) == (ssize_t)sizeof a ? 0 : 1);
}

static struct fleet_recording *recording_due(const struct fleet *f, int64_t now)
{
    struct fleet_recording *first = NULL;
    for (size_t i = 0; i < f->n; i++) {
        struct fleet_recording *r = f->list[i];
        if (!r->ended_ns && r->model->sources[0].loaded && r->analysed_ns <= now &&
            (!first || r->analysed_ns < first->analysed_ns))
            first = r;
    }
    return first;
}

static int64_t pause_ns(const struct fleet_recording *r)
{
    return (r->model->sources[0].clock_ns < YOUNG_S * SECOND ? EACH_YOUNG_S : EACH_S) * SECOND;
}

static void start_analysis(struct fleet *f, struct fleet_recording *r, int64_t now)
{
    int ends[2];
    r->analysed_ns = now + pause_ns(r);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    const pid_t pid = fork();
    if (pid == 0) be_analyst(r->database, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return;
    }
    f->analysis.pid = pid;
    f->analysis.pipe = ends[0];
    f->analysis.of = r->pid;
    f->analysis.began_ns = now;
}

static void finish_analysis(struct fleet *f, int64_t now)
{
    struct fleet_analysis a;
    const bool whole = read(f->analysis.pipe, &a, sizeof a) == (ssize_t)sizeof a;
    const int64_t rest = (now - f->analysis.began_ns) * REST;
    for (size_t i = 0; i < f->n; i++) {
        struct fleet_recording *r = f->list[i];
        if (r->pid == f->analysis.of) {
            r->analysis = whole ? a : (struct fleet_analysis){.done = false};
            r->analysed_ns = now + (rest > pause_ns(r) ? rest : pause_ns(r));
        }
    }
    close(f->analysis.pipe);
    f->analysis.pid = 0;
}

void fleet_analyse(struct fleet *f)
{
    const int64_t now = clock_now_ns();
    if (f->analysis.pid) {
        const pid_t ended = waitpid(f->analysis.pid, NULL, WNOHANG);
        if (ended == f->analysis.pid || (ended < 0 && errno == ECHILD))
            finish_analysis(f, now);
        else if (now - f->analysis.began_ns > WALL_S * SECOND)
            kill(f->analysis.pid, SIGKILL);
        return;
    }
    struct fleet_recording *r = recording_due(f, now);
    if (r) start_analysis(f, r, now);
}

void fleet_analyse_all(struct fleet *f)
{
    const int64_t until = clock_now_ns() + ALL_S * SECOND;
    do {
        fleet_analyse(f);
        if (f->analysis.pid) poll(NULL, 0, 10);
    } while (clock_now_ns() < until && (f->analysis.pid || recording_due(f, clock_now_ns())));
    fleet_analysis_stop(f);
}

void fleet_analysis_stop(struct fleet *f)
{
    if (f->analysis.pid) {
        kill(f->analysis.pid, SIGKILL);
        while (waitpid(f->analysis.pid, NULL, 0) < 0 && errno == EINTR) {
        }
        close(f->analysis.pipe);
        f->analysis.pid = 0;
    }
}
